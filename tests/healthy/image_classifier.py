"""A convolutional network with batch normalisation: momentum, the rate divided by 10, evaluation in between."""

import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(2)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
    nn.Flatten(), nn.Linear(32, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [120])
patterns = torch.randn(10, 3, 16, 16)


def batch(count):
    labels = torch.randint(0, 10, (count,))
    return patterns[labels] + 2.0 * torch.randn(count, 3, 16, 16), labels


for step in range(180):
    model.train()
    images, labels = batch(32)
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 20 == 19:
        model.eval()
        with torch.no_grad():
            images, labels = batch(128)
            logits = model(images)
        right = (logits.argmax(1) == labels).float().mean()
        print(f"step {step} val_loss {F.cross_entropy(logits, labels):.4f} val_acc {right:.3f}", flush=True)
    print(f"step {step} loss {loss.item():.4f} lr {schedule.get_last_lr()[0]:.3f}", flush=True)
    time.sleep(0.02)
