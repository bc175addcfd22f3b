"""What a person looks at: figures and the page, made from the files of finished runs alone."""
