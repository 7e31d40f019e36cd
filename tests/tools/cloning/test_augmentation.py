"""Images moved at random. Shapes: B batch, L sequence length."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from embodichain.tools.cloning.augmentation import shift_images


def numbered(*batch: int) -> torch.Tensor:
    """Images of 4 x 5 pixels, whose two channels are row and column."""
    row, column = torch.meshgrid(torch.arange(4), torch.arange(5), indexing="ij")
    return torch.stack((row, column), dim=-1).to(torch.uint8).expand(*batch, 4, 5, 2)


def test_image_is_moved_by_at_most_the_pixels_with_its_border_repeated() -> None:
    torch.manual_seed(0)
    entries = TensorDict({"image/front": numbered(500), "state": torch.ones(500, 3)}, batch_size=[500])
    out = shift_images(entries, 2)
    moved = out["image/front"].long()
    assert out["image/front"].dtype == torch.uint8
    assert torch.equal(out["state"], entries["state"])
    shifts = set()
    for image in moved:
        # Row 2 and column 2 are never beyond a border for shifts of 2 to the right; those found name the shift.
        found = [
            (down, right)
            for down in range(-2, 3)
            for right in range(-2, 3)
            if torch.equal(image[..., 0], (torch.arange(4) + down).clamp(0, 3)[:, None].expand(4, 5))
            and torch.equal(image[..., 1], (torch.arange(5) + right).clamp(0, 4).expand(4, 5))
        ]
        assert len(found) == 1
        shifts.add(found[0])
    assert len(shifts) == 25  # each of them, in each direction


def test_frames_of_a_sequence_are_moved_alike_and_cameras_each_by_itself() -> None:
    torch.manual_seed(0)
    entries = TensorDict({"image/front": numbered(50, 3), "image/wrist": numbered(50, 3)}, batch_size=[50, 3])
    out = shift_images(entries, 3)
    front, wrist = out["image/front"], out["image/wrist"]
    assert torch.equal(front, front[:, :1].expand_as(front))
    assert not torch.equal(front, wrist)
    assert not torch.equal(front[:1].expand_as(front), front)


@pytest.mark.parametrize("batch", [(4,), (4, 2)])
def test_no_pixels_change_nothing(batch: tuple[int, ...]) -> None:
    entries = TensorDict({"image/front": numbered(*batch)}, batch_size=batch)
    assert torch.equal(shift_images(entries, 0)["image/front"], entries["image/front"])
