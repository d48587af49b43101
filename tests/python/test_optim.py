"""tigon.optim.AdamW against torch's, and what torch asks of an optimizer."""

import copy

import pytest
import tigon
import torch
from tigon import _native

SHAPES = [(64, 96), (5000,), (96,), (1,), (3, 7, 11), (70, 70)]


def _parameters(device, dtype=torch.float32):
    return [torch.nn.Parameter(torch.randn(*shape, device=device).to(dtype)) for shape in SHAPES]


def _set_gradients(parameters, step):
    generator = torch.Generator().manual_seed(step)
    for p in parameters:
        # Some far smaller than others, as gradients are.
        size = torch.randn(p.shape, generator=generator) * torch.rand(p.shape, generator=generator) ** 8
        p.grad = size.to(p.device, p.dtype)


def _run(optimizer, parameters, steps, first=0):
    for step in range(first, first + steps):
        _set_gradients(parameters, step)
        optimizer.step()


def _clones(parameters):
    return [torch.nn.Parameter(p.detach().clone()) for p in parameters]


def test_f32_is_torchs(device):
    ours = _parameters(device)
    theirs = _clones(ours)
    options = {"lr": 3e-3, "betas": (0.8, 0.95), "eps": 1e-7, "weight_decay": 0.1}
    _run(tigon.optim.AdamW(ours, **options), ours, 10)
    _run(torch.optim.AdamW(theirs, **options), theirs, 10)
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=2e-6, atol=2e-7)


def test_f64_is_torchs():
    ours = [torch.nn.Parameter(p.detach().double()) for p in _parameters("cpu")]
    theirs = _clones(ours)
    _run(tigon.optim.AdamW(ours, state="int8"), ours, 5)
    _run(torch.optim.AdamW(theirs), theirs, 5)
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-13, atol=1e-14)


def test_groups_have_their_own_options(device):
    ours = _parameters(device)
    theirs = _clones(ours)

    def groups(list_):
        return [{"params": list_[:2], "lr": 1e-2, "weight_decay": 0.0}, {"params": list_[2:], "betas": (0.5, 0.9)}]

    optimizer, expected = tigon.optim.AdamW(groups(ours)), torch.optim.AdamW(groups(theirs))
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.5) for o in (optimizer, expected)]
    for step in range(4):
        _run(optimizer, ours, 1, step)
        _run(expected, theirs, 1, step)
        for schedule in schedules:
            schedule.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=2e-6, atol=2e-7)
    # A group that comes later; a parameter without a gradient keeps its count of steps.
    for o, list_ in ((optimizer, ours), (expected, theirs)):
        o.add_param_group({"params": [torch.nn.Parameter(torch.ones(4, device=device))], "weight_decay": 0.5})
        list_.append(o.param_groups[-1]["params"][0])
        _set_gradients(list_, 9)
        list_[0].grad = None
        o.step()
        _run(o, list_, 1, 10)
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=2e-6, atol=2e-7)
    assert optimizer.state[ours[0]]["step"] == 5
    assert optimizer.state[ours[1]]["step"] == 6


def test_a_group_is_one_call(monkeypatch):
    calls = []
    native = _native.adamw_list
    monkeypatch.setattr(_native, "adamw_list", lambda *args: (calls.append(len(args[0])), native(*args)))
    parameters = _parameters("cpu")
    _run(tigon.optim.AdamW(parameters), parameters, 1)
    assert calls == [len(SHAPES)]


@pytest.mark.parametrize("state", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("stochastic", [False, True])
def test_a_saved_run_goes_on(device, dtype, state, stochastic, tmp_path):
    parameters = _parameters(device, dtype)
    options = {"state": state, "stochastic_rounding": stochastic, "seed": 5, "lr": 1e-2}
    optimizer = tigon.optim.AdamW(parameters, **options)
    _run(optimizer, parameters, 3)
    torch.save(optimizer.state_dict(), tmp_path / "optimizer")
    half = _clones(parameters)
    _run(optimizer, parameters, 3, 3)
    again = tigon.optim.AdamW(half, **options)
    again.load_state_dict(torch.load(tmp_path / "optimizer"))
    assert again.param_groups[0]["state"] == state
    _run(again, half, 3, 3)
    for p, q in zip(parameters, half, strict=True):
        assert torch.equal(p, q)
        for key, value in optimizer.state[p].items():
            other = again.state[q][key]
            assert other == value if key == "step" else torch.equal(other, value) and other.dtype == value.dtype
    copied = copy.deepcopy(optimizer)
    first = copied.param_groups[0]["params"][0]
    assert torch.equal(copied.state[first]["exp_avg"], optimizer.state[parameters[0]]["exp_avg"])


def test_torchs_state_is_taken_over():
    theirs = _parameters("cpu")
    expected = torch.optim.AdamW(theirs)
    _run(expected, theirs, 3)
    ours = _clones(theirs)
    optimizer = tigon.optim.AdamW(ours, lr=1, seed=7)
    optimizer.load_state_dict(expected.state_dict())
    assert optimizer.param_groups[0]["seed"] == 7
    _run(expected, theirs, 3, 3)
    _run(optimizer, ours, 3, 3)
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("option", ["amsgrad", "maximize"])
def test_what_torch_does_and_we_do_not_is_not_taken_over(option):
    parameters = _parameters("cpu")
    theirs = torch.optim.AdamW(_clones(parameters), **{option: True})
    with pytest.raises(ValueError, match=option):
        tigon.optim.AdamW(parameters).load_state_dict(theirs.state_dict())


def test_small_updates_count_by_chance(device):
    """An update of a tenth of bf16's step: to nearest nothing happens, by chance it does so in the mean."""
    start = torch.ones(1 << 16, device=device, dtype=torch.bfloat16)
    means = {}
    for stochastic in (False, True):
        p = torch.nn.Parameter(start.clone())
        optimizer = tigon.optim.AdamW([p], lr=2**-7 / 10, weight_decay=0, stochastic_rounding=stochastic)
        for _ in range(5):
            p.grad = -torch.ones_like(p)
            optimizer.step()
        means[stochastic] = p.detach().float().mean().item() - 1
    assert means[False] == 0
    assert means[True] == pytest.approx(5 * 2**-7 / 10, rel=0.02)


def test_the_seed_and_the_place_choose_the_bits(device):
    def run(seed, count=2):
        parameters = [torch.nn.Parameter(torch.ones(5000, device=device, dtype=torch.bfloat16)) for _ in range(count)]
        optimizer = tigon.optim.AdamW(parameters, lr=1e-3, stochastic_rounding=True, seed=seed)
        for p in parameters:
            p.grad = torch.ones_like(p)
        optimizer.step()
        return parameters

    first, again, other = run(1), run(1), run(2)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[0], first[1])


def test_threads_change_nothing():
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            torch.manual_seed(3)
            parameters = [torch.nn.Parameter(torch.randn(300, 1000, dtype=torch.bfloat16)) for _ in range(3)]
            _run(tigon.optim.AdamW(parameters, state="int8", stochastic_rounding=True), parameters, 2)
            results.append(parameters)
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(p, q) for p, q in zip(results[0], other, strict=True))


def test_what_small_tensors_keep():
    parameters = [torch.nn.Parameter(torch.zeros(n)) for n in (4095, 4096, 0)]
    optimizer = tigon.optim.AdamW(parameters, state="int8")
    _run(optimizer, parameters, 1)
    small, large, empty = (optimizer.state[p] for p in parameters)
    assert small["exp_avg"].dtype is torch.float32
    assert "exp_avg_scale" not in small
    assert large["exp_avg"].dtype is torch.uint8
    assert large["exp_avg_sq_scale"].shape == (16,)
    assert empty["step"] == 1


def test_a_closure_is_run_with_gradients():
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = tigon.optim.AdamW([p], lr=0.1, weight_decay=0)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == 3
    torch.testing.assert_close(p.detach(), torch.full((3,), 0.9))


def test_gradients_with_gaps_are_read(device):
    p = torch.nn.Parameter(torch.randn(6, 8, device=device))
    q = torch.nn.Parameter(p.detach().clone())
    p.grad = torch.randn(8, 6, device=device).t()
    q.grad = p.grad.contiguous()
    for parameter in (p, q):
        tigon.optim.AdamW([parameter]).step()
    assert torch.equal(p, q)


def test_what_makes_no_sense_is_refused():
    p = torch.nn.Parameter(torch.zeros(4, 4))
    with pytest.raises(ValueError, match="expected one of f32, bf16, int8"):
        tigon.optim.AdamW([p], state="fp8")
    optimizer = tigon.optim.AdamW([p])
    with pytest.raises(ValueError, match="expected one of"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))], "state": "int4"})
    assert len(optimizer.param_groups) == 1
    p.grad = torch.ones(4, 4).to_sparse()
    with pytest.raises((NotImplementedError, RuntimeError)):
        optimizer.step()
    apart = torch.nn.Parameter(torch.zeros(4, 8)[:, ::2])
    apart.grad = torch.zeros(4, 4)
    with pytest.raises(ValueError, match="contiguous"):
        tigon.optim.AdamW([apart]).step()
    p.grad = torch.zeros(4, 4)
    with pytest.raises(ValueError, match="'lr' is not finite"):
        tigon.optim.AdamW([p], lr=float("nan")).step()
    with pytest.raises(ValueError, match="has 1 values"):
        _native.adamw_list([p, p], [p], *[None] * 14)
    with pytest.raises(TypeError, match="is no list"):
        _native.adamw_list(p, p, *[None] * 14)
