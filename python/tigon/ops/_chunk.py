"""How many tokens linear_cross_entropy works on at a time."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chunk:
    """At most one of ``tokens`` (a fixed number) and ``budget_bytes`` (for the logits that exist at a time).

    ``lean`` takes the least memory, for a fourth matrix product: no chunk's logits are ever whole, but pass twice in
    panels of the vocabulary within the budget (32 MiB unless given). On a CPU all tokens are one chunk then.
    """

    tokens: int = 0
    budget_bytes: int = 0
    lean: bool = False

    def __post_init__(self) -> None:
        if self.tokens < 0 or self.budget_bytes < 0 or (self.tokens and self.budget_bytes):
            raise ValueError(f"{self} is not possible: expected tokens or budget_bytes, positive, or neither")


_LIBRARYS_CHOICE = Chunk()


def as_chunk(chunk: "Chunk | int | str | None") -> Chunk:
    """None: the library's choice. An int: tokens. "lean": Chunk(lean=True)."""
    if chunk is None:
        return _LIBRARYS_CHOICE
    if isinstance(chunk, Chunk):
        return chunk
    if chunk == "lean":
        return Chunk(lean=True)
    if isinstance(chunk, int) and not isinstance(chunk, bool) and chunk > 0:
        return Chunk(tokens=chunk)
    raise ValueError(f"chunk is {chunk!r}: expected None, 'lean', a positive number of tokens, or a tigon.ops.Chunk")
