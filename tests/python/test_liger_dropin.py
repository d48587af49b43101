"""What stands in for Liger's functions behaves as they do, liger_kernel installed or not.

The facts are those of liger_kernel 0.8.5, seen by running its kernels in Triton's interpreter beside ours.
"""

import pytest
import references
import tigon
import torch
from comparing import assert_close, in_f64
from tigon.liger import functions

BF16, F32 = torch.bfloat16, torch.float32
TARGET = torch.tensor([1, 2, -100, 0, 5])
REPORT_ALL = (True, True, True)

cross_entropy = functions.LigerCrossEntropyFunction.apply
rms_norm = functions.LigerRMSNormFunction.apply
fused_add_rms_norm = functions.LigerFusedAddRMSNormFunction.apply
rope = functions.LigerRopeFunction.apply


def linear_cross_entropy(x, weight, target, *more):
    return functions.LigerFusedLinearCrossEntropyFunction.apply(x, weight, target, *more)


def random(*shape, dtype=F32):
    return torch.randn(*shape).to(dtype).requires_grad_()


# Losses


@pytest.mark.parametrize(("reduction", "shape"), [("mean", ()), ("sum", ()), ("none", (5,))])
def test_a_loss_of_logits_comes_in_their_type(reduction, shape, dtype):
    logits = random(5, 7, dtype=dtype)
    results = cross_entropy(logits, TARGET, None, -100, 1e-3, 0.1, reduction, 5.0, *REPORT_ALL)
    assert type(results) is tuple
    assert [(t.dtype, t.shape) for t in results] == [
        (dtype, shape),
        (dtype, shape),
        (F32, shape),
        (torch.int64, (5,)),
    ]
    loss, z_loss, *_ = results
    upstream = torch.full_like(loss, 2.0)
    (got,) = torch.autograd.grad(loss, logits, upstream)
    doubles = logits.detach().double().requires_grad_()
    options = {"lse_square_scale": 1e-3, "label_smoothing": 0.1, "softcap": 5.0, "reduction": reduction}
    want = references.cross_entropy(doubles, TARGET, **options)
    assert_close(loss, want, dtype, 2)
    terms = references.cross_entropy_terms(doubles, TARGET, lse_square_scale=1e-3, softcap=5.0)[1]
    assert_close(z_loss, {"mean": terms.sum() / 4, "sum": terms.sum(), "none": terms}[reduction], dtype, 2)
    assert got.dtype == dtype
    assert_close(got, torch.autograd.grad(want, doubles, upstream.double())[0], dtype, 4)


def test_losses_add_to_and_compare_with_others_of_their_type(dtype):
    """What fails with "BFloat16 did not match Float" where the loss is f32."""
    logits = random(5, 7, dtype=dtype)
    loss, *_ = cross_entropy(logits, TARGET, None)
    total = torch.zeros((), dtype=dtype)
    torch.testing.assert_close(loss, total + loss)
    assert torch.equal(loss, loss.detach().to(dtype))
    total.copy_(loss.detach())
    torch.stack([total, loss.detach()])
    torch.dot(loss.reshape(1), torch.ones(1, dtype=dtype)).backward()
    assert logits.grad.dtype == dtype


@pytest.mark.parametrize(("reduction", "shape"), [("mean", ()), ("sum", ()), ("none", (5,))])
def test_a_loss_of_hidden_states_is_f32_and_its_z_loss_is_not(reduction, shape, dtype):
    x, weight, bias = random(5, 8, dtype=dtype), random(7, 8, dtype=dtype), random(7, dtype=dtype)
    options = (bias, None, -100, 1e-3, 0.1, reduction, 5.0, True, None, False, True, True, None, None, 1)
    results = linear_cross_entropy(x, weight, TARGET, *options)
    assert type(results) is tuple
    assert [(t.dtype, t.shape) for t in results] == [(F32, shape), (dtype, shape), (F32, shape), (torch.int64, (5,))]
    results[0].sum().backward()
    assert [t.grad.dtype for t in (x, weight, bias)] == [dtype] * 3


def test_under_autocast_a_z_loss_has_the_type_of_the_hidden_states():
    with torch.autocast("cpu", BF16):
        loss, z_loss, *_ = linear_cross_entropy(
            random(5, 8), random(7, 8), TARGET, None, None, -100, 1e-3, 0.0, "mean", None, True
        )
    assert (loss.dtype, z_loss.dtype) == (F32, F32)


def test_what_was_not_asked_for_is_none():
    assert cross_entropy(random(5, 7), TARGET, None)[1:] == (None, None, None)
    assert linear_cross_entropy(random(5, 8), random(7, 8), TARGET)[1:] == (None, None, None)


def test_class_weights_that_ask_for_a_gradient_get_none():
    class_weight = torch.rand(7).requires_grad_()
    cross_entropy(random(5, 7), TARGET, class_weight)[0].backward()
    linear_cross_entropy(random(5, 8), random(7, 8), TARGET, None, class_weight)[0].backward()
    assert class_weight.grad is None


@pytest.mark.parametrize("accum_dtype", [None, torch.float64, F32, BF16, torch.float16])
def test_any_accum_dtype_is_taken(accum_dtype, dtype):
    x, weight = random(5, 8, dtype=dtype), random(7, 8, dtype=dtype)
    options = (None, None, -100, 0.0, 0.0, "mean", None, False, accum_dtype)
    linear_cross_entropy(x, weight, TARGET, *options)[0].backward()
    doubles = in_f64([x, weight])
    references.linear_cross_entropy(*doubles, TARGET).backward()
    assert_close(weight.grad, doubles[1].grad, dtype, 4)


def test_errors_of_losses():
    logits, x, weight = random(5, 7), random(5, 8), random(7, 8)
    for class_weight in (torch.ones(6), torch.ones(8), torch.ones(7, dtype=torch.int64)):
        with pytest.raises(AssertionError):
            cross_entropy(logits, TARGET, class_weight)
        with pytest.raises(AssertionError):
            linear_cross_entropy(x, weight, TARGET, None, class_weight)
    for flags in ((1, False, False), (False, None, False), (False, False, "yes")):
        with pytest.raises(AssertionError):
            cross_entropy(logits, TARGET, None, -100, 0.0, 0.0, "mean", None, *flags)
        more = (flags[0], None, False, *flags[1:])
        with pytest.raises(AssertionError):
            linear_cross_entropy(x, weight, TARGET, None, None, -100, 0.0, 0.0, "mean", None, *more)
    with pytest.raises(RuntimeError):
        linear_cross_entropy(x, random(7, 9), TARGET)
    for chunk in (0, -1, True, 1.5, None):
        more = (None, None, -100, 0.0, 0.0, "mean", None, False, None, False, False, False, None, None, chunk)
        with pytest.raises(ValueError, match="chunk_mem_const"):
            linear_cross_entropy(x, weight, TARGET, *more)


def test_the_fused_loss_says_that_it_takes_all_arguments():
    """liger_fused_linear_cross_entropy asks for this attribute before it passes chunk_mem_const on."""
    assert functions.LigerFusedLinearCrossEntropyFunction.supports_inner_impl_dispatch is True


def test_the_ops_own_losses_stay_f32():
    assert tigon.ops.cross_entropy(random(5, 7, dtype=BF16), TARGET).dtype == F32


# Norms


@pytest.mark.parametrize(("number", "name"), [(0, "llama"), (1, "gemma"), (-1, "none")])
def test_casting_modes_have_numbers_too(number, name):
    x, residual, weight = (random(*shape, dtype=BF16) for shape in [(3, 8), (3, 8), (8,)])
    assert torch.equal(rms_norm(x, weight, 1e-6, 1.0, number), tigon.ops.rms_norm(x, weight, 1e-6, 1.0, name))
    got = fused_add_rms_norm(x, residual, weight, 1e-6, 1.0, number)
    want = tigon.ops.fused_add_rms_norm(x, residual, weight, 1e-6, 1.0, name)
    assert all(map(torch.equal, got, want))


def test_errors_of_norms():
    x, weight = random(3, 8), random(8)
    for mode in ("foo", 7, None):
        with pytest.raises(AssertionError):
            rms_norm(x, weight, 1e-6, 0.0, mode)
        with pytest.raises(AssertionError):
            fused_add_rms_norm(x, x, weight, 1e-6, 0.0, mode)
    with pytest.raises(AssertionError):
        rms_norm(x, random(9), 1e-6)
    with pytest.raises(AssertionError):
        fused_add_rms_norm(x, x, random(9), 1e-6)
    with pytest.raises(ValueError, match="wrong shape"):
        functions.LigerLayerNormFunction.apply(x, random(9), random(9), 1e-6)


@pytest.mark.parametrize("types", [(BF16, F32), (F32, BF16)], ids=str)
def test_a_residual_of_another_type(types):
    x, residual, weight = random(3, 8, dtype=types[0]), random(3, 8, dtype=types[1]), random(8)
    y, total = fused_add_rms_norm(x, residual, weight, 1e-6)
    assert (y.dtype, total.dtype) == (types[0], types[0])
    doubles = in_f64([x, residual, weight])
    for got, want in zip((y, total), references.fused_add_rms_norm(*doubles), strict=True):
        assert_close(got, want, BF16, 3)
    (y.float() + total.float()).sum().backward()
    assert (x.grad.dtype, residual.grad.dtype) == types


# Gated activations


@pytest.mark.parametrize("types", [(BF16, F32), (F32, BF16)], ids=str)
@pytest.mark.parametrize("name", ["swiglu", "geglu"])
def test_factors_of_two_types(name, types):
    a, b = random(3, 8, dtype=types[0]), random(3, 8, dtype=types[1])
    function = {"swiglu": functions.LigerSiLUMulFunction, "geglu": functions.LigerGELUMulFunction}[name]
    c = function.apply(a, b)
    assert c.dtype == types[0]
    doubles = in_f64([a, b])
    want = getattr(references, name)(*doubles)
    assert_close(c, want, types[0], 2)
    upstream = torch.randn(3, 8).to(types[0])
    gradients = torch.autograd.grad(c, (a, b), upstream)
    assert tuple(g.dtype for g in gradients) == types
    for got, expected in zip(gradients, torch.autograd.grad(want, doubles, upstream.double()), strict=True):
        assert_close(got, expected, got.dtype, 4)


# Rope


def heads_in_memory(number, d, dtype=F32, device="cpu"):
    """[2, heads, 5, D] as Hugging Face has it: a view of [batch, seq, heads, D]."""
    return torch.randn(2, 5, number, d, device=device).to(dtype).transpose(1, 2).requires_grad_()


def angles(*shape, device="cpu"):
    angle = torch.randn(*shape, device=device)
    return angle.cos(), angle.sin()


def check_rope(q, k, cos, sin, rotary, used, position_ids=None, unsqueeze_dim=1, rotary_dim=None):
    """Against the rotation of the first 2·(rotary // 2) elements by the first columns of the tables used."""
    half = rotary // 2
    wide = [t[..., :half].double().repeat(1, 1, 2) for t in used]
    rotated = rope(q, k, cos, sin, position_ids, unsqueeze_dim, rotary_dim)
    doubles = in_f64([q, k])
    want = [references.rotate(t, *wide) for t in doubles]
    upstream = [torch.randn(t.shape, device=t.device).to(t.dtype) for t in rotated]
    gradients = torch.autograd.grad(rotated, (q, k), upstream)
    want_gradients = torch.autograd.grad(want, doubles, [u.double() for u in upstream])
    for x, y, g, w, wg in zip((q, k), rotated, gradients, want, want_gradients, strict=True):
        assert (y.dtype, g.dtype) == (x.dtype, x.dtype)
        assert y.transpose(1, 2).is_contiguous()
        assert_close(y, w, x.dtype, 2)
        assert_close(g, wg, x.dtype, 2)
        assert torch.equal(y[..., 2 * half :], x[..., 2 * half :])


@pytest.mark.parametrize(
    ("d", "width", "rotary"),
    [(41, 41, 41), (41, 42, 41), (41, 64, 41), (40, 21, 21), (41, 20, 20), (8, 16, 8), (7, 4, 4), (3, 3, 3)],
    ids=str,
)
def test_odd_head_sizes_and_tables_of_any_width(d, width, rotary, device, dtype):
    tables = angles(2, 5, width, device=device)
    q, k = heads_in_memory(4, d, dtype, device), heads_in_memory(2, d, dtype, device)
    check_rope(q, k, *tables, rotary, tables)


@pytest.mark.parametrize(
    ("rotary_dim", "width"), [(r, w) for r in (2, 4, 6, 8) for w in (3, 4, 8) if w >= r // 2], ids=str
)
def test_rotary_dim_says_how_many_elements_rotate(rotary_dim, width):
    tables = angles(2, 5, width)
    check_rope(heads_in_memory(4, 8), heads_in_memory(2, 8), *tables, rotary_dim, tables, rotary_dim=rotary_dim)


@pytest.mark.parametrize(("rotary_dim", "width"), [(3, 8), (0, 8), (-2, 8), (10, 8), (8, 3), (6, 2)])
def test_rotary_dims_that_are_errors(rotary_dim, width):
    with pytest.raises(ValueError, match=r"rotary_dim|width"):
        rope(heads_in_memory(4, 8), heads_in_memory(2, 8), *angles(2, 5, width), None, 1, rotary_dim)


@pytest.mark.parametrize("name", ["per batch", "shared", "longer", "matrix", "longer matrix", "heads", "heads last"])
def test_shapes_of_tables(name):
    rows = 9 if "longer" in name else 5
    cos, sin = angles(2 if name in ("per batch", "heads", "heads last") else 1, rows, 8)
    used = cos[:, :5], sin[:, :5]
    shape = {
        "matrix": lambda t: t[0],
        "longer matrix": lambda t: t[0],
        "heads": lambda t: t[:, None],
        "heads last": lambda t: t[:, :, None],
    }.get(name, lambda t: t)
    unsqueeze_dim = 2 if name == "heads last" else 1
    check_rope(
        heads_in_memory(4, 8), heads_in_memory(2, 8), shape(cos), shape(sin), 8, used, unsqueeze_dim=unsqueeze_dim
    )


def test_position_ids_are_not_used():
    cos, sin = angles(1, 5, 8)
    positions = torch.tensor([[4, 3, 2, 1, 0]])
    check_rope(heads_in_memory(4, 8), heads_in_memory(2, 8), cos[0], sin[0], 8, (cos, sin), position_ids=positions)


def test_queries_and_keys_of_two_types():
    cos, sin = angles(2, 5, 8)
    check_rope(heads_in_memory(4, 8), heads_in_memory(2, 8, BF16), cos, sin, 8, (cos, sin))


def test_heads_before_seq_in_memory_come_back_with_seq_before_heads():
    cos, sin = angles(2, 5, 8)
    check_rope(random(2, 4, 5, 8), random(2, 2, 5, 8), cos, sin, 8, (cos, sin))


def test_tables_that_ask_for_a_gradient_get_none():
    cos, sin = (t.requires_grad_() for t in angles(2, 5, 8))
    q, k = rope(heads_in_memory(4, 8), heads_in_memory(2, 8), cos, sin)
    (q.sum() + k.sum()).backward()
    assert cos.grad is None
    assert sin.grad is None


def test_inputs_are_not_overwritten():
    """Liger's rope and losses overwrite theirs; whoever reads them afterwards finds more here, not less."""
    q, k, logits = heads_in_memory(4, 8), heads_in_memory(2, 8), random(5, 7)
    before = [t.detach().clone() for t in (q, k, logits)]
    rope(q, k, *angles(2, 5, 8))
    cross_entropy(logits, TARGET, None)[0].backward()
    assert all(map(torch.equal, (q, k, logits), before))


@pytest.fixture
def mesh():
    """Of this process alone."""
    from torch.distributed.device_mesh import init_device_mesh

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("which", [(True, True), (True, False), (False, True)], ids=str)
def test_parts_of_dtensors_are_gated_where_they_are(which, mesh):
    from torch.distributed.tensor import DTensor, Shard

    leaves = [random(3, 8), random(3, 8)]
    given = [DTensor.from_local(t, mesh, [Shard(1)]) if spread else t for t, spread in zip(leaves, which, strict=True)]
    c = functions.LigerSiLUMulFunction.apply(*given, 0.5, 2.0)
    assert isinstance(c, DTensor)
    assert c.placements == (Shard(1),)
    plain = functions.LigerSiLUMulFunction.apply(*leaves, 0.5, 2.0)
    assert torch.equal(c.full_tensor(), plain)
    upstream = torch.randn(3, 8)
    want = torch.autograd.grad(plain, leaves, upstream)
    assert all(map(torch.equal, torch.autograd.grad(c.full_tensor(), leaves, upstream), want))


def test_a_dtensor_is_gathered_for_its_norm(mesh):
    from torch.distributed.tensor import DTensor, Replicate, Shard

    x, weight = random(3, 8), random(8)
    y = rms_norm(DTensor.from_local(x, mesh, [Shard(0)]), DTensor.from_local(weight, mesh, [Replicate()]), 1e-6)
    assert not isinstance(y, DTensor)
    plain = rms_norm(x, weight, 1e-6)
    assert torch.equal(y, plain)
    upstream = torch.randn(3, 8)
    want = torch.autograd.grad(plain, (x, weight), upstream)
    assert all(map(torch.equal, torch.autograd.grad(y, (x, weight), upstream), want))


def test_the_functions_can_be_compiled(dtype):
    logits, q, k = random(5, 7, dtype=dtype), heads_in_memory(4, 8, dtype), heads_in_memory(2, 8, dtype)
    tables = angles(2, 5, 8)

    def run(logits, q, k):
        rotated = torch.cat([t.flatten() for t in rope(q, k, *tables)])
        gated = functions.LigerSiLUMulFunction.apply(logits, logits, 0.5, 2.0)
        return cross_entropy(rms_norm(logits, None, 1e-6) + gated, TARGET, None)[0] + rotated.sum()

    want = torch.autograd.grad(run(logits, q, k), (logits, q, k))
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    for got, expected in zip(torch.autograd.grad(compiled(logits, q, k), (logits, q, k)), want, strict=True):
        assert_close(got, expected, dtype, 2)
