"""What the server can be told about JSON Web Tokens."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from forebay.model import Misconfigured

__all__ = ["ROLE_CLAIM", "Algorithm", "JwtSettings"]

Algorithm: TypeAlias = Literal["HS256", "RS256", "EdDSA"]

ROLE_CLAIM = "role"
"""The claim that has the role, unless another is named; then a list in `roles` does as well."""

_Path: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, description="the path of a file")]
_Secret: TypeAlias = Annotated[
    str,
    msgspec.Meta(min_length=1, description="a secret of 32 bytes or more", extra={"secret": True}),
]
_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, description="a text that isn't empty")]


class JwtSettings(msgspec.Struct, frozen=True, kw_only=True):
    """JSON Web Tokens that are taken beside API keys: who signs them, and what they must say."""

    algorithm: Algorithm | None = None
    """How tokens are signed; none takes no tokens. HS256 needs a secret, the others a key set."""
    secret: _Secret | None = None
    """The secret of HS256, 32 bytes or more, as text; it is never shown."""
    secret_file: _Path | None = None
    """A file with that secret; a line break at its end is no part of it."""
    key_set_file: _Path | None = None
    """A file with the public keys of RS256 or EdDSA, a JSON Web Key Set; each key has a `kid`."""
    issuer: _Name | None = None
    """What the claim `iss` must be; none takes tokens of any issuer that has the key."""
    audience: _Name | None = None
    """What the claim `aud` must be or contain; none doesn't look at it."""
    leeway_seconds: Annotated[float, msgspec.Meta(ge=0.0, le=3_600.0)] = 30.0
    """How far the clocks of signers may be off."""
    expiry_required: bool = True
    """Refuse tokens that never expire (no `exp`)."""
    role_claim: _Name = ROLE_CLAIM
    """The claim with the role or a list of them; without `role` itself, `roles` is looked at."""

    def __post_init__(self) -> None:
        """Refuse a way of signing without what it is checked with, and the other way round."""
        given = [
            name for name in ("secret", "secret_file", "key_set_file") if getattr(self, name) is not None
        ]
        if self.algorithm is None:
            if given:
                text = f"{given[0]} is set, but algorithm is missing"
                raise Misconfigured(text, hint="set it to HS256, RS256 or EdDSA", key="algorithm")
            return
        wanted = ["secret_file", "secret"] if self.algorithm == "HS256" else ["key_set_file"]
        for name in given:
            if name not in wanted:
                text = f"{name} is set, but {self.algorithm} is checked with {wanted[0]}"
                raise Misconfigured(text, hint=f"set {wanted[0]} alone", key=name)
        if len(given) > 1:
            raise Misconfigured("the secret is given twice", hint="give it once", key=given[1])
        if not given:
            text = f"algorithm is {self.algorithm}, but {wanted[0]} is missing"
            raise Misconfigured(text, hint=f"set {' or '.join(wanted)}", key=wanted[0])
