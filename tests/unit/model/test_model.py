"""The face of the package."""

import forebay.model


def test_every_public_name_is_there_and_listed_once() -> None:
    names = forebay.model.__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(forebay.model, name) for name in names)
