import pytest
import references
import tigon
import torch
from comparing import check_against_f64


def tables(batch, seq, rotary, device, dtype):
    angle = torch.randn(batch, seq, rotary // 2, device=device).repeat(1, 1, 2)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def heads(batch, number, seq, d, device, dtype):
    """As Hugging Face has them: [batch, seq, heads, D] in memory, seen with heads before seq."""
    return torch.randn(batch, seq, number, d, device=device).to(dtype).transpose(1, 2).requires_grad_()


def check(q, k, cos, sin, interleaved=False):
    wide_cos, wide_sin = cos.double(), sin.double()
    rotate = references.rotate_neighbours if interleaved else references.rotate
    check_against_f64(
        lambda q, k: tigon.ops.rope(q, k, cos, sin, interleaved=interleaved),
        lambda q, k: (rotate(q, wide_cos, wide_sin), rotate(k, wide_cos, wide_sin)),
        [q, k],
        units=2,
        grad_units=2,
    )


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "neighbours"])
@pytest.mark.parametrize("table_batch", [1, "batch"])
@pytest.mark.parametrize(
    ("batch", "q_heads", "k_heads", "seq", "d", "rotary"),
    [(1, 1, 1, 1, 2, 2), (2, 4, 2, 7, 16, 16), (3, 5, 5, 4, 66, 66), (2, 4, 1, 9, 64, 32), (1, 3, 2, 33, 128, 128)],
)
def test_values_and_gradients(interleaved, table_batch, batch, q_heads, k_heads, seq, d, rotary, device, dtype):
    cos, sin = tables(1 if table_batch == 1 else batch, seq, rotary, device, dtype)
    q, k = heads(batch, q_heads, seq, d, device, dtype), heads(batch, k_heads, seq, d, device, dtype)
    check(q, k, cos, sin, interleaved)


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "neighbours"])
def test_tables_in_f32(interleaved, device, dtype):
    cos, sin = tables(1, 5, 16, device, torch.float32)
    check(heads(2, 4, 5, 16, device, dtype), heads(2, 2, 5, 16, device, dtype), cos, sin, interleaved)


def test_results_keep_the_strides(device):
    q, k = heads(2, 4, 5, 16, device, torch.float32), heads(2, 2, 5, 16, device, torch.float32)
    for x, y in zip((q, k), tigon.ops.rope(q, k, *tables(1, 5, 16, device, torch.float32)), strict=True):
        assert x.stride() == y.stride()


def test_without_keys(device):
    q, (cos, sin) = heads(2, 4, 5, 16, device, torch.float32), tables(1, 5, 16, device, torch.float32)
    rotated, nothing = tigon.ops.rope(q, None, cos, sin)
    assert nothing is None
    assert torch.equal(rotated, tigon.ops.rope(q, q, cos, sin)[0])


def test_heads_after_seq(device):
    q, k = torch.randn(2, 5, 4, 16, device=device), torch.randn(2, 5, 2, 16, device=device)
    cos, sin = tables(2, 5, 16, device, torch.float32)
    got = tigon.ops.rope(q, k, cos, sin, unsqueeze_dim=2)
    want = tigon.ops.rope(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
    for g, w in zip(got, want, strict=True):
        assert torch.equal(g, w.transpose(1, 2))


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "neighbours"])
def test_position_ids_choose_rows_of_plain_tables(interleaved, device):
    q, k = heads(2, 4, 5, 16, device, torch.float32), heads(2, 2, 5, 16, device, torch.float32)
    cos, sin = (t[0] for t in tables(1, 50, 16, device, torch.float32))
    ids = torch.randint(50, (2, 5), device=device)

    def rope(*tables):
        return tigon.ops.rope(q, k, *tables, interleaved=interleaved)

    for chosen in (ids, ids[:1]):
        got = rope(cos, sin, chosen)
        assert all(map(torch.equal, got, rope(cos[chosen], sin[chosen])))
        assert all(map(torch.equal, got, rope(cos[chosen], sin[chosen], chosen)))  # nothing to choose
    assert all(map(torch.equal, rope(cos, sin), rope(cos[None, :5], sin[None, :5])))


def test_only_what_is_needed(device, monkeypatch):
    q, k = heads(2, 4, 5, 16, device, torch.float32), heads(2, 2, 5, 16, device, torch.float32)
    cos, sin = tables(1, 5, 16, device, torch.float32)
    want = torch.autograd.grad(tigon.ops.rope(q, k, cos, sin), (q, k), (torch.ones_like(q), torch.ones_like(k)))
    for needed in (0, 1):
        pair = [q.detach(), k.detach()]
        pair[needed].requires_grad_()
        rotated = tigon.ops.rope(*pair, cos, sin)[needed]
        (got,) = torch.autograd.grad(rotated, pair[needed], torch.ones_like(rotated))
        assert torch.equal(got, want[needed])


def test_layouts_with_gaps_in_heads(device, dtype):
    wide = torch.randn(2, 4, 5, 32, device=device).to(dtype)
    q, k = wide[..., ::2].detach().requires_grad_(), wide[..., :16].detach().requires_grad_()
    check(q, k, *tables(1, 5, 16, device, dtype))


def test_refusals(device):
    q, (cos, sin) = heads(2, 4, 5, 16, device, torch.float32), tables(1, 5, 16, device, torch.float32)
    with pytest.raises(ValueError, match="unsqueeze_dim is 3"):
        tigon.ops.rope(q, q, cos, sin, unsqueeze_dim=3)
    with pytest.raises(ValueError, match="q has 3 dimensions: expected 4"):
        tigon.ops.rope(q[0], q[0], cos, sin)
    with pytest.raises(ValueError, match="15 wide"):
        tigon.ops.rope(q, q, cos[..., :15], sin[..., :15], interleaved=True)
    with pytest.raises(NotImplementedError, match="no gradients of cos and sin"):
        tigon.ops.rope(q, q, cos.requires_grad_(), sin)
    cos, sin = tables(2, 5, 16, device, torch.float32)
    with pytest.raises(ValueError, match=r"cos is \[2, 4, 16\] for q of batch 2 and seq 5"):
        tigon.ops.rope(q, q, cos[:, :4], sin[:, :4])
    with pytest.raises(ValueError, match=r"cos is \[5, 2, 16\].*expected a row per token, \[1 or 2, 5, rotary\]"):
        tigon.ops.rope(q, q, cos.transpose(0, 1), sin.transpose(0, 1))
    with pytest.raises(ValueError, match="'cos' has the wrong number of rows"):
        tigon.ops.rope(q, q, cos[0, :4], sin[0, :4])


@pytest.mark.parametrize("seq_first", [True, False])
def test_results_and_gradients_are_laid_out_as_the_inputs(device, seq_first):
    shape = (2, 5, 3, 8) if seq_first else (2, 3, 5, 8)
    view = torch.randn(shape, device=device).transpose(1, 2) if seq_first else torch.randn(shape, device=device)
    q = view.requires_grad_()
    cos, sin = torch.rand(2, 1, 5, 8, device=device)
    rotated, _ = tigon.ops.rope(q, None, cos, sin)
    (dq,) = torch.autograd.grad(rotated, q, torch.randn(2, 3, 5, 8, device=device))
    assert rotated.stride() == q.stride()
    assert dq.stride() == q.stride()
