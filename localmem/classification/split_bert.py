"""A BERT whose lower layers process the two texts of a pair separately, so that a text in many pairs runs only once.

For 100 remembered and 5 new sentences the lower layers process 105 texts instead of 500 pairs; only the layers above
see both texts of a pair (PreTTR, MacAvaney et al., SIGIR 2020; DeFormer, Cao et al., ACL 2020). Position numbers start
again with the second text, whose token type marks it, so that the states of one text do not depend on the other.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BertConfig, BertForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput

from localmem.batching import map_by_length
from localmem.classification.pair_classifier import SPLIT_LAYERS, Encoded, EncoderWeights, Pairs, Probabilities
from localmem.errors import BadInput
from localmem.retrieval.encoder_part import NOTES

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Text = tuple[tuple[int, ...], int]  # the tokens, and which text of a pair it is: 0 or 1


class SplitBert(BertForSequenceClassification):
    """`config.localmem["apart"]` is the number of layers that see one text at a time; all else is as in BERT."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        notes = getattr(config, NOTES, {})
        layers = notes.get(SPLIT_LAYERS)
        if not isinstance(layers, int) or not 0 < layers < config.num_hidden_layers:
            raise BadInput(
                f"{layers} of {config.num_hidden_layers} layers cannot process texts separately; give 1 to "
                f"{config.num_hidden_layers - 1}"
            )
        self.split_layers = layers

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor,
        labels: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Padded pairs from the tokenizer, both texts in one pass, as in training. `labels` are unused."""
        kind = token_type_ids.masked_fill(attention_mask == 0, -1)  # padding attends to padding, and nothing to it
        states = self._embed_tokens(input_ids, token_type_ids, _positions(kind))
        states = self._through(states, kind[:, :, None] == kind[:, None, :], 0, self.split_layers)
        return SequenceClassifierOutput(logits=self.classify_states(states, attention_mask))

    def text_states(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        """(n, length, width) states of padded texts after the lower layers; `which` (n,) says 0 or 1, its place."""
        kind = which[:, None].expand_as(input_ids)
        positions = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        states = self._embed_tokens(input_ids, kind, positions)
        mask = attention_mask.bool()[:, None, :].expand(-1, positions.shape[1], -1)
        return self._through(states, mask, 0, self.split_layers)

    def classify_states(self, states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """(n, labels) logits from the concatenated states of both texts, by the upper layers and the head."""
        mask = attention_mask.bool()[:, None, :].expand(-1, states.shape[1], -1)
        states = self._through(states, mask, self.split_layers, self.config.num_hidden_layers)
        logits: torch.Tensor = self.classifier(self.dropout(self.bert.pooler(states)))
        return logits

    def _embed_tokens(self, ids: torch.Tensor, kinds: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.bert.embeddings(ids, token_type_ids=kinds, position_ids=positions)
        return states

    def _through(self, states: torch.Tensor, mask: torch.Tensor, first: int, last: int) -> torch.Tensor:
        for layer in self.bert.encoder.layer[first:last]:
            states = layer(states, attention_mask=mask[:, None])
        return states


class SplitBertWeights(EncoderWeights):
    """A SplitBert that processes each distinct text of a call once."""

    _model: SplitBert

    def _load(self, folder: Path, dtype: torch.dtype) -> "PreTrainedModel":
        model = SplitBert.from_pretrained(str(folder), dtype=dtype, attn_implementation="sdpa", local_files_only=True)
        self._positions = int(model.config.max_position_embeddings)
        return model

    def encode(self, pairs: Pairs) -> list[Encoded]:
        return self._encode(pairs, return_token_type_ids=True)

    def classify(self, pairs: Pairs, size: int) -> list[Probabilities]:
        """The probability of each label, in batches of `size` pairs of similar length."""
        pair_texts = [_split_pair(pair) for pair in self.encode(pairs)]
        texts = list(dict.fromkeys(text for pair in pair_texts for text in pair))
        with torch.inference_mode():
            states = dict(
                zip(texts, map_by_length(self._text_states, texts, lambda text: len(text[0]), size), strict=True)
            )
            return map_by_length(
                lambda batch: self._classify_states([torch.cat([states[text] for text in pair]) for pair in batch]),
                pair_texts,
                lambda pair: sum(len(ids) for ids, _ in pair),
                size,
            )

    def _text_states(self, texts: Sequence[Text]) -> list[torch.Tensor]:
        ids, mask = _pad([torch.tensor(ids) for ids, _ in texts])
        which = torch.tensor([number for _, number in texts])
        device = self._model.device
        rows = self._model.text_states(ids.to(device), mask.to(device), which.to(device))
        return [row[: len(ids)] for row, (ids, _) in zip(rows, texts, strict=True)]

    def _classify_states(self, states: Sequence[torch.Tensor]) -> list[Probabilities]:
        padded, mask = _pad(states)
        logits = self._model.classify_states(padded, mask)
        return list(logits.float().softmax(dim=-1).cpu().numpy())


def _positions(kinds: torch.Tensor) -> torch.Tensor:
    """Each token's position within its text, by the (n, length) token types `kinds`; 0 for padding."""
    first = (kinds == 0).sum(dim=1, keepdim=True)
    places = torch.arange(kinds.shape[1], device=kinds.device).expand_as(kinds)
    return torch.where(kinds == 1, places - first, places).masked_fill(kinds < 0, 0)


def _split_pair(pair: Encoded) -> tuple[Text, Text]:
    """The two texts of an encoded pair, the first with its opening token, each with its closing one."""
    ids, kinds = pair["input_ids"], pair["token_type_ids"]
    first = len(kinds) - sum(kinds)
    return (tuple(ids[:first]), 0), (tuple(ids[first:]), 1)


def _pad(rows: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows as one padded tensor, and its mask: False for padding."""
    lengths = torch.tensor([len(row) for row in rows], device=rows[0].device)
    padded = pad_sequence(list(rows), batch_first=True)
    return padded, torch.arange(padded.shape[1], device=lengths.device) < lengths[:, None]
