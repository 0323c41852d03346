"""Knowledge-augmented encoder: masked language model of text and passage (REALM, 3.2).

Legend: N pairs of text and passage, L tokens, M masked positions, V vocabulary.
"""

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ragqa.models.pretrained import (
    check_tokenizer,
    copy_tokenizer,
    get_max_sequence,
    load_masked_lm,
    make_masked_lm,
    select_segments,
    silence_transformers,
)


class KnowledgeAugmentedEncoder(nn.Module):
    """Masked language model that predicts masked tokens of a text from the text and a passage.

    The input for a text x and a passage z is [CLS] x [SEP] z [SEP].
    """

    def __init__(self, model: nn.Module, *, tokenizer: Path | None = None) -> None:
        """Wrap a masked language model.

        Args:
            model: masked language model of transformers.
            tokenizer: tokenizer file, which ``save`` copies next to the weights.

        Raises:
            Mismatch: as for ``check_tokenizer``.
        """
        super().__init__()
        self.model = cast(Any, model)
        check_tokenizer(model, tokenizer)
        self.tokenizer = tokenizer

    @property
    def max_tokens(self) -> int:
        """Maximum length of a sequence in tokens."""
        return get_max_sequence(self.model.config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor, positions: Tensor) -> Tensor:
        """Compute the logits at the masked positions.

        Args:
            input_ids: ``[N, L]``.
            attention_mask: ``[N, L]``, 1 on tokens and 0 on padding.
            token_type_ids: ``[N, L]``, 0 on the text and 1 on the passage.
            positions: ``[N, M]``, the masked positions.

        Returns:
            Logits ``[N, M, V]``.
        """

        # The head runs on the masked positions only; on all positions it would take longer than the encoder.
        def select_positions(module: nn.Module, arguments: Any, outputs: Any) -> Any:
            hidden = outputs.last_hidden_state
            index = positions.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
            outputs["last_hidden_state"] = torch.gather(hidden, 1, index)
            return outputs

        segments = select_segments(self.model.config, token_type_ids)
        with self.model.base_model.register_forward_hook(select_positions):
            logits: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask, **segments).logits
        return logits

    @classmethod
    def load(cls, path: Path) -> "KnowledgeAugmentedEncoder":
        """Load the model in the directory ``path``.

        Raises:
            ArtefactError: there is no masked language model, or some of its weights are missing.
            Mismatch: as for ``check_tokenizer``, with ``tokenizer.json`` in ``path``.
        """
        return cls(load_masked_lm(path), tokenizer=path / "tokenizer.json")

    @classmethod
    def from_config(cls, path: Path) -> "KnowledgeAugmentedEncoder":
        """Make a model with random weights from ``config.json`` in the directory ``path``.

        Raises:
            ArtefactError: there is no configuration of a masked language model.
            Mismatch: as for ``load``.
        """
        return cls(make_masked_lm(path), tokenizer=path / "tokenizer.json")

    def save(self, path: Path) -> None:
        """Write the model and its tokenizer into the directory ``path``, in transformers' format.

        ``load_encoder_module`` can load the encoder from the same directory.
        """
        with silence_transformers():
            self.model.save_pretrained(path)
        copy_tokenizer(self.tokenizer, path)
