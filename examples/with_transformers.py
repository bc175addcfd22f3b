"""A line of Hugging Face models: trained by their Trainer, evaluated, and one of them saved as any other model."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, random_split
from transformers import TrainingArguments, ViTConfig, ViTForImageClassification

import subspaces as ss
from subspaces.integrations.transformers import SubspaceTrainer

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images[:, None] / 16).float()
train, test = random_split(
    [{"pixel_values": image, "labels": int(label)} for image, label in zip(images, digits.target, strict=True)],
    [1297, 500],
)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
config = ViTConfig(image_size=8, patch_size=4, num_channels=1, num_labels=10, initializer_range=0.2, **sizes)

family = ss.Subspace(lambda: ViTForImageClassification(config), ss.Line())  # or a pretrained model
settings = TrainingArguments(
    "out", num_train_epochs=8, per_device_train_batch_size=32, per_device_eval_batch_size=100, learning_rate=0.01,
    weight_decay=0.01, eval_strategy="epoch", save_strategy="epoch", save_total_limit=1, use_cpu=True,
    report_to="none", disable_tqdm=True,
)  # fmt: skip
trainer = SubspaceTrainer(family, settings, train_dataset=train, eval_dataset=test, beta=1.0)
trainer.train()  # trainer.train(resume_from_checkpoint=True) continues a run that was stopped

evaluation = ss.evaluate(family, test=DataLoader(test, batch_size=100), name="my line")
print(f"one model, the midpoint: {evaluation['midpoint'].accuracy:.1%}; two: {evaluation['pair'].accuracy:.1%}")
family.midpoint().save_pretrained("midpoint")
same = ViTForImageClassification.from_pretrained("midpoint").eval()
trainer.save_model("family")
family = ss.load("family/family.safetensors", lambda: ViTForImageClassification(config))
