"""The subspace itself, θ = c(α)ᵀΩ: shapes, families, batch-norm statistics, files, and choosing a point."""
