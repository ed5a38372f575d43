"""A DataLoader whose workers are forked after the parent has used the GPU. Prints a RESULT line."""

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    """Rows of known content."""

    def __len__(self):
        return 512

    def __getitem__(self, index):
        return torch.full((1024,), float(index))


def main():
    warm = torch.ones(1024, 1024, device="cuda").sum().item()
    loader = DataLoader(Numbers(), batch_size=16, num_workers=4, multiprocessing_context="fork", pin_memory=True)
    total = 0.0
    for _ in range(2):
        total += sum((batch.cuda(non_blocking=True) * 2).sum().item() for batch in loader)
    print(f"RESULT loader {warm} {total}", flush=True)


if __name__ == "__main__":
    main()
