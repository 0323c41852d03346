"""REALM's knowledge-augmented encoder: a masked language model that reads a passage beside the text (section 3.2).

Legend: N pairs of text and passage, L tokens, M masked positions, V vocabulary.
"""

import shutil
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ragqa.models.pretrained import check_tokenizer, load_masked_lm, make_masked_lm, segments, silence_transformers


class KnowledgeAugmentedEncoder(nn.Module):
    """Guesses the masked tokens of x in [CLS] x [SEP] z [SEP]; any masked language model of transformers."""

    def __init__(self, model: nn.Module, *, tokenizer: Path | None = None) -> None:
        """``tokenizer`` is the file that ``save`` puts beside the weights; raises Mismatch where it is another's."""
        super().__init__()
        self.model = cast(Any, model)
        check_tokenizer(model, tokenizer)
        self.tokenizer = tokenizer

    @property
    def max_tokens(self) -> int:
        """Longest sequence."""
        return min(512, int(getattr(self.model.config, "max_position_embeddings", 512)))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor, positions: Tensor) -> Tensor:
        """Logits ``[N, M, V]`` at ``positions [N, M]``, from ``[N, L]`` integer tensors.

        The head runs on these positions only: over all of them it would cost more than the encoder.
        """
        types = segments(self.model.config, token_type_ids)

        def chosen(module: nn.Module, arguments: Any, outputs: Any) -> Any:
            hidden = outputs.last_hidden_state
            index = positions.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
            outputs["last_hidden_state"] = torch.gather(hidden, 1, index)
            return outputs

        hook = self.model.base_model.register_forward_hook(chosen)
        try:
            logits: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask, **types).logits
        finally:
            hook.remove()
        return logits

    @classmethod
    def from_encoder(cls, path: Path) -> "KnowledgeAugmentedEncoder":
        """The masked language model in the directory ``path``; raises ArtefactError where there is none."""
        return cls(load_masked_lm(path), tokenizer=path / "tokenizer.json")

    @classmethod
    def from_config(cls, path: Path) -> "KnowledgeAugmentedEncoder":
        """Random weights, of the shape that ``config.json`` in the directory ``path`` says; raises ArtefactError."""
        return cls(make_masked_lm(path), tokenizer=path / "tokenizer.json")

    def save(self, path: Path) -> None:
        """Write a directory in transformers' own format, from which encoders can be loaded, too."""
        with silence_transformers():
            self.model.save_pretrained(path)
        if self.tokenizer is not None and self.tokenizer.resolve() != (path / "tokenizer.json").resolve():
            shutil.copyfile(self.tokenizer, path / "tokenizer.json")

    @classmethod
    def load(cls, path: Path) -> "KnowledgeAugmentedEncoder":
        """What ``save`` wrote into ``path``."""
        return cls.from_encoder(path)
