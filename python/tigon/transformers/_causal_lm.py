"""The forward of a causal language model that computes its training loss without the logits."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tigon.ops import CrossEntropyOutput
from tigon.transformers._layout import LEADING_ARGUMENTS, Layout
from tigon.transformers._lm_head import head_loss, linear_head
from tigon.transformers._loss import mean_over_items, shifted_labels, tigon_causal_lm_loss
from tigon.transformers._tied import tied_embedding, tied_table


def fused_forward(original: Callable[..., Any], layout: Layout) -> Callable[..., Any]:
    """``original`` with the loss computed by linear_cross_entropy where a training step asks for it.

    That is: labels (or shift_labels) given, model.training, and the standard loss. Then ``logits`` of the output is None.
    Everything else is ``original`` itself. ``skip_logits`` overrides the choice: False to get the logits in training, True
    for a loss without them in evaluation. With ``return_token_accuracy`` or ``return_predicted_tokens`` the output has them.
    """

    @functools.wraps(original)
    def forward(
        self: Any,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        *others: Any,
        skip_logits: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        leading = (input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, labels, use_cache)
        if others or not _skips_logits(self, labels, kwargs.get("shift_labels"), skip_logits):
            return original(self, *leading, *others, **kwargs)
        inputs = dict(zip(LEADING_ARGUMENTS, leading, strict=True))
        del inputs["labels"]
        return _forward_without_logits(self, layout, inputs, labels, **kwargs)

    return forward


def _skips_logits(
    model: Any, labels: torch.Tensor | None, shift_labels: torch.Tensor | None, asked: bool | None
) -> bool:
    if labels is None and shift_labels is None:
        if asked:
            raise ValueError(
                "skip_logits=True without labels or shift_labels leaves nothing to compute: pass one of them"
            )
        return False
    return (
        (model.training if asked is None else asked) and _has_standard_loss(model) and _has_linear_head(model.lm_head)
    )


def _has_standard_loss(model: Any) -> bool:
    from transformers.loss.loss_utils import ForCausalLMLoss

    return model.loss_function in (ForCausalLMLoss, tigon_causal_lm_loss)


def _has_linear_head(head: nn.Module) -> bool:
    if linear_head(head) is not None:
        return True
    if not torch.compiler.is_compiling():  # logging would break the graph
        _say_once(
            f"lm_head, a {type(head).__name__} with a {type(getattr(head, 'weight', None)).__name__}, is not a plain linear "
            "layer: the loss is computed from full logits."
        )
    return False


@functools.cache
def _say_once(message: str) -> None:
    from transformers.utils import logging

    logging.get_logger(__name__).warning(message)


def _forward_without_logits(
    model: Any,
    layout: Layout,
    inputs: dict[str, Any],
    labels: torch.Tensor | None,
    *,
    logits_to_keep: int | torch.Tensor = 0,
    return_dict: bool | None = None,
    output_router_logits: bool | None = None,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
    **kwargs: Any,
) -> Any:
    from tigon.transformers._outputs import TigonCausalLMOutputWithPast, TigonMoeCausalLMOutputWithPast

    family, config = layout.family, model.config
    if family.router_loss:
        if output_router_logits is None:
            output_router_logits = config.output_router_logits
        kwargs["output_router_logits"] = output_router_logits
    head_weight = None
    if inputs["input_ids"] is not None and inputs["inputs_embeds"] is None and _only_embeds(model.model, layout):
        table = tied_table(model, linear_head(model.lm_head))
        if table is not None:
            inputs["inputs_embeds"], head_weight = tied_embedding(
                table.weight, inputs.pop("input_ids"), table.padding_idx
            )
    outputs = model.model(**inputs, **kwargs)
    hidden = _kept(outputs.last_hidden_state, logits_to_keep, layout)
    if family.logits_divisor is not None:
        hidden = hidden / getattr(config, family.logits_divisor)

    ignore_index = kwargs.get("ignore_index", -100)
    items = kwargs.get("num_items_in_batch")
    target = shifted_labels(labels, kwargs.get("shift_labels"), ignore_index, hidden)
    result = head_loss(
        model.lm_head,
        head_weight,
        hidden,
        target,
        ignore_index=ignore_index,
        reduction="mean" if items is None else "sum",
        softcap=None if family.softcap is None else getattr(config, family.softcap),
        return_token_accuracy=return_token_accuracy,
        return_predicted_tokens=return_predicted_tokens,
    )
    loss, _, accuracy, predicted = result if isinstance(result, tuple) else CrossEntropyOutput(result)

    common: dict[str, Any] = {
        "loss": mean_over_items(loss, items),
        "past_key_values": outputs.past_key_values,
        "hidden_states": outputs.hidden_states,
        "attentions": outputs.attentions,
        "token_accuracy": accuracy,
        "predicted_tokens": predicted,
    }
    output: Any
    if family.router_loss:
        if output_router_logits:
            balance = _router_loss(model, layout, outputs, inputs["attention_mask"])
            common["aux_loss"] = balance
            common["loss"] = common["loss"] + model.router_aux_loss_coef * balance.to(loss.device)
        output = TigonMoeCausalLMOutputWithPast(router_logits=outputs.router_logits, **common)
    else:
        output = TigonCausalLMOutputWithPast(**common)
    as_output = config.return_dict if return_dict is None else return_dict
    return output if as_output else output.to_tuple()


def _kept(hidden: torch.Tensor, logits_to_keep: int | torch.Tensor, layout: Layout) -> torch.Tensor:
    """The positions whose logits are asked for, as the installed Transformers understands ``logits_to_keep``."""
    if hasattr(layout.module, "slice_logits_to_keep"):  # since 5.21, where it may also be a mask or positions per row
        kept: torch.Tensor = layout.module.slice_logits_to_keep(hidden, logits_to_keep)
        return kept
    return hidden[:, slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep, :]


def _only_embeds(base: nn.Module, layout: Layout) -> bool:
    """Whether nobody looks at the base model's input_ids but Hugging Face's forward, which takes their embedding instead."""
    return (
        type(base).forward.__module__ == layout.module.__name__
        and "forward" not in vars(base)
        and not (base._forward_pre_hooks_with_kwargs or base._forward_hooks_with_kwargs)
    )


def _router_loss(model: Any, layout: Layout, outputs: Any, attention_mask: torch.Tensor | None) -> torch.Tensor:
    loss: torch.Tensor = layout.module.load_balancing_loss_func(
        outputs.router_logits, model.num_experts, model.num_experts_per_tok, attention_mask
    )
    return loss
