"""The ops as torch.library operators: what torch.compile and its kin see."""

import pytest
import tigon
import torch
from comparing import as_tuple
from op_cases import NAMES, make
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode


@pytest.fixture(params=NAMES)
def case(request, device):
    return make(request.param, device)


class Watching(TorchDispatchMode):
    """Any dispatch mode makes calls go through the operators; this one notes Tigon's."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "tigon":
            self.calls.append((function, args))
        return function(*args, **(kwargs or {}))


def weighed(results):
    return sum((r * (i + 1.5)).sin().sum() for i, r in enumerate(as_tuple(results)))


def test_operators_keep_their_promises(case):
    if case.operator is None:
        pytest.skip("made of other ops")
    torch.library.opcheck(case.operator, case.arguments)
    frozen = tuple(a.detach() if isinstance(a, torch.Tensor) else a for a in case.arguments)
    torch.library.opcheck(case.operator, frozen)


def test_backward_operators_keep_their_promises(case):
    """Recorded from a real backward, so that their arguments are those that occur."""
    with Watching() as watching:
        torch.autograd.grad(weighed(case.function(*case.leaves)), case.leaves)
    recorded = [call for call in watching.calls if "backward" in call[0].name()]
    assert recorded or case.name == "linear_cross_entropy_mean"  # whose forward has the gradients
    for operator, arguments in recorded:
        torch.library.opcheck(operator, tuple(a.detach() if isinstance(a, torch.Tensor) else a for a in arguments))


def test_the_operator_gives_what_the_function_gives(case):
    want = torch.autograd.grad(weighed(case.function(*case.leaves)), case.leaves)
    with Watching() as watching:
        results = case.function(*case.leaves)
        got = torch.autograd.grad(weighed(results), case.leaves)
    assert watching.calls
    assert all(map(torch.equal, as_tuple(results), as_tuple(case.function(*case.leaves))))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compiles_whole(case, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda *leaves: weighed(case.function(*(2 * leaf for leaf in leaves))), fullgraph=True, dynamic=dynamic
    )
    got = torch.autograd.grad(compiled(*case.leaves), case.leaves)
    want = torch.autograd.grad(weighed(case.function(*(2 * leaf for leaf in case.leaves))), case.leaves)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(
            compiled(*case.leaves), weighed(case.function(*(2 * leaf for leaf in case.leaves))), rtol=1e-4, atol=1e-5
        )


ROWWISE = {
    "rms_norm": lambda x, target: tigon.ops.rms_norm(x),
    "fused_add_rms_norm": lambda x, target: tigon.ops.fused_add_rms_norm(x, x),
    "layer_norm": lambda x, target: tigon.ops.layer_norm(x),
    "swiglu": lambda x, target: tigon.ops.swiglu(x, x),
    "swiglu_linear": lambda x, target: tigon.ops.swiglu_linear(x, None, x[:1, :4]),
    "cross_entropy": tigon.ops.cross_entropy,
    "linear_cross_entropy": lambda x, target: tigon.ops.linear_cross_entropy(x, x[:3], target % 3),
}


@pytest.mark.parametrize("name", ROWWISE)
def test_one_graph_for_every_number_of_tokens(name, device):
    torch._dynamo.reset()
    compiled = torch.compile(ROWWISE[name], fullgraph=True, dynamic=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for tokens in (4, 7, 33):
            x = torch.randn(tokens, 8, device=device, requires_grad=True)
            target = torch.arange(tokens, device=device) % 8
            got, want = (torch.autograd.grad(weighed(f(x, target)), x) for f in (compiled, ROWWISE[name]))
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_one_graph_with_the_op_in_it(case):
    """No break, and the op is not taken apart."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    torch.compile(lambda *leaves: case.function(*leaves), backend=backend, fullgraph=True)(*case.leaves)
    assert len(graphs) == 1
    assert any("tigon" in str(node.target) for node in graphs[0].graph.nodes)


@pytest.mark.parametrize("trained", [True, False])
def test_traced_for_other_inputs(case, trained):
    leaves = [leaf.detach().requires_grad_(trained) for leaf in case.leaves]
    traced = torch.jit.trace(case.function, tuple(leaves), check_trace=False)
    others = [torch.randn_like(leaf) for leaf in leaves]
    torch.testing.assert_close(as_tuple(traced(*others)), as_tuple(case.function(*others)))


def test_fakes(case):
    real = as_tuple(case.function(*case.leaves))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = as_tuple(case.function(*(mode.from_tensor(leaf) for leaf in case.leaves)))
    for r, f in zip(real, fakes, strict=True):
        assert (r.shape, r.stride(), r.dtype, r.device) == (f.shape, f.stride(), f.dtype, f.device)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("autocast", [False, True])
def test_meta_tensors(name, autocast):
    """Types as without autocast, which torch has for other devices only."""
    real, meta = make(name, "cpu"), make(name, "meta")
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        results = as_tuple(meta.function(*meta.leaves))
    for expected, got in zip(as_tuple(real.function(*real.leaves)), results, strict=True):
        assert got.is_meta
        assert (got.shape, got.stride(), got.dtype) == (expected.shape, expected.stride(), expected.dtype)
    weighed(results).backward()
    assert all(leaf.grad.is_meta and leaf.grad.shape == leaf.shape for leaf in meta.leaves)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("frozen", [(), (0,), (1,)], ids=["all", "frozen input", "frozen head"])
def test_flops_of_the_fused_loss_are_counted(reduction, frozen, device):
    from torch.utils.flop_counter import FlopCounterMode

    x, head = torch.randn(2, 3, 16, device=device), torch.randn(40, 16, device=device)
    target = torch.randint(40, (2, 3), device=device)
    leaves = [t.requires_grad_(i not in frozen) for i, t in enumerate((x, head))]

    def flops(loss_of):
        with FlopCounterMode(display=False) as counter:
            loss_of(*leaves).sum().backward()
        return counter.get_total_flops()

    plain = flops(
        lambda x, w: torch.nn.functional.cross_entropy((x @ w.T).flatten(0, 1), target.flatten(), reduction=reduction)
    )
    assert plain == 2 * (3 - len(frozen)) * 6 * 16 * 40
    again = 2 * 6 * 16 * 40 if reduction == "none" else 0  # backward makes the logits anew
    assert flops(lambda x, w: tigon.ops.linear_cross_entropy(x, w, target, reduction=reduction)) == plain + again
