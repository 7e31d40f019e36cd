import numpy as np
import pytest

from embodichain.utils.caption import draw_caption


def test_words_are_light_on_a_dark_strip_and_the_rest_stays() -> None:
    picture = np.full((160, 200, 3), 128, dtype=np.uint8)
    drawn = draw_caption(picture, "push the red cube")
    # letters of 160 / 16 = 10 pixels on a strip of 17
    strip = drawn[-17:]
    assert (drawn[:-17] == 128).all()
    assert (strip[:, 0] == (20, 20, 20)).all()
    assert (strip > 200).any()
    assert (picture == 128).all()


@pytest.mark.parametrize("width", [40, 100])
def test_long_text_is_made_to_fit(width: int) -> None:
    drawn = draw_caption(np.zeros((160, width, 3), dtype=np.uint8), "push the red cube to the goal")
    columns = np.flatnonzero((drawn > 100).any(axis=(0, 2)))
    # within 94 % of the width, unless letters would become smaller than 6 pixels
    assert columns.size
    assert columns.min() >= (0.02 * width if width == 100 else 0)
