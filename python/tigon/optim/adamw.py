"""AdamW in one call per group: on a GPU one launch for up to 128 tensors, on a CPU all cores over all of them."""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import torch

from tigon import _native

_BLOCK = 256  # elements that share a scale in 8 bits
_SMALLEST = 4096  # elements of a tensor that has 8-bit states
_STATES = ("f32", "bf16", "int8")
_OURS = ("state", "stochastic_rounding", "seed")  # what groups have beside torch's options
_NOT_OURS = ("amsgrad", "maximize")
_Closure = Callable[[], float] | None


class AdamW(torch.optim.Optimizer):
    """``torch.optim.AdamW`` with states in f32, bf16 or 8 bits, and bf16 or f16 weights rounded by chance.

    ``state``: "f32"; "bf16", rounded as the weights are; or "int8", in bitsandbytes' format: 256 elements share a scale.
    Tensors of less than 4096 elements keep f32 then; give norms and embeddings a group of their own with state="f32".
    ``stochastic_rounding``: 16-bit weights and bf16 states go up or down by chance, so that small updates count in the
    mean, and no f32 copy of the weights is needed. The bits are a function of ``seed``, the step and the parameter's place.

    Everything can differ from group to group. f32 states have the names that torch gives them, so a state_dict of
    torch.optim.AdamW can be loaded.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        state: str = "f32",
        stochastic_rounding: bool = False,
        seed: int = 0,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "state": state,
            "stochastic_rounding": stochastic_rounding,
            "seed": seed,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if group["state"] not in _STATES:
            self.param_groups.pop()
            raise ValueError(f"state is {group['state']!r}: expected one of {', '.join(_STATES)}")

    @torch.no_grad()
    def step(self, closure: _Closure = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        first = 0
        for group in self.param_groups:
            self._update(group, first)
            first += len(group["params"])
        return loss

    def _update(self, group: dict[str, Any], first: int) -> None:
        calls: dict[tuple[torch.device, bool, bool], list[list[Any]]] = {}
        for place, p in enumerate(group["params"], first):
            grad = p.grad
            if grad is None:
                continue
            state = self.state[p]
            if not state:
                _begin(state, p, group["state"])
            state["step"] += 1
            scale = state.get("exp_avg_scale")
            key = (p.device, scale is not None, p.dtype is torch.float64)
            columns = calls.get(key)
            if columns is None:
                columns = calls[key] = [[] for _ in range(8)]
            for column, value in zip(
                columns,
                (
                    p,
                    grad,
                    state["exp_avg"],
                    state["exp_avg_sq"],
                    scale,
                    state.get("exp_avg_sq_scale"),
                    state["step"],
                    place,
                ),
                strict=True,
            ):
                column.append(value)
        beta1, beta2 = group["betas"]
        for (_, coded, _), (params, grads, ms, vs, m_scales, v_scales, steps, places) in calls.items():
            _native.adamw_list(
                params,
                grads,
                ms,
                vs,
                m_scales if coded else None,
                v_scales if coded else None,
                None,
                float(group["lr"]),
                beta1,
                beta2,
                group["eps"],
                group["weight_decay"],
                steps,
                int(group["stochastic_rounding"]),
                group["seed"],
                places,
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        groups = state_dict["param_groups"]
        for name in _NOT_OURS:
            if any(group.get(name) for group in groups):
                raise ValueError(f"these states are of an AdamW with {name}=True, which tigon.optim.AdamW does not do")
        # torch's AdamW does not know of these: they stay as they are here.
        ours = [{key: group[key] for key in _OURS} for group in self.param_groups]
        if len(ours) == len(groups):  # else torch says so
            groups = [mine | group for mine, group in zip(ours, groups, strict=True)]
        super().load_state_dict({**state_dict, "param_groups": groups})
        # torch has given every state the type of its parameter; they are as they were saved.
        saved = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        parameters = chain.from_iterable(group["params"] for group in self.param_groups)
        for name, p in zip(saved, parameters, strict=True):
            for key, value in state_dict["state"].get(name, {}).items():
                if key == "step":
                    self.state[p][key] = int(value)
                elif isinstance(value, torch.Tensor):
                    self.state[p][key] = value.detach().to(p.device, copy=True).contiguous()


def _begin(state: dict[str, Any], p: torch.Tensor, kind: str) -> None:
    state["step"] = 0
    coded = kind == "int8" and p.numel() >= _SMALLEST and p.dtype is not torch.float64
    dtype = torch.uint8 if coded else torch.bfloat16 if kind == "bf16" else torch.float32
    if p.dtype is torch.float64:
        dtype = torch.float64
    for name in ("exp_avg", "exp_avg_sq"):
        state[name] = torch.zeros(p.shape, dtype=dtype, device=p.device)
        if coded:
            blocks = (p.numel() + _BLOCK - 1) // _BLOCK
            state[name + "_scale"] = torch.zeros(blocks, dtype=torch.float32, device=p.device)
