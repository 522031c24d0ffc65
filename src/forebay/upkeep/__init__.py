"""Upkeep: what a server does beside its requests, so that a log stays small and its inbox empty."""

from forebay.upkeep.rounds import Upkeep

__all__ = ["Upkeep"]
