"""Captions of images."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFont

__all__ = ["draw_caption"]

_BACK, _TEXT = (20, 20, 20), (245, 245, 245)


def draw_caption(image: np.ndarray, text: str) -> np.ndarray:
    """Return an image [H, W, 3] uint8 with words on a dark strip along its lower edge, as large as fits its width."""
    height, width, _ = image.shape
    size = max(8.0, height / 16)
    font = ImageFont.load_default(size)
    room = 0.94 * width
    length = font.getlength(text)
    if length > room:
        font = ImageFont.load_default(max(6.0, size * room / length))
    drawn = Image.fromarray(image)
    draw = ImageDraw.Draw(drawn)
    strip = round(1.7 * size)
    draw.rectangle((0, height - strip, width, height), fill=_BACK)
    draw.text((width / 2, height - strip / 2), text, fill=_TEXT, font=font, anchor="mm")
    return np.asarray(drawn)
