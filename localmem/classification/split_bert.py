"""A BERT whose lower layers read the two texts of a pair apart, so that a text in many pairs goes through them once.

Of 100 remembered and 5 new sentences the lower layers then read 105 texts, not 500 pairs; only the layers above see
both texts of a pair (PreTTR, MacAvaney et al., SIGIR 2020; DeFormer, Cao et al., ACL 2020). Knows no labels' meaning.
Positions begin anew with the second text, which its token type marks, so that no text's reading depends on the other.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BertConfig, BertForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput

from localmem.classification.pair_weights import APART, NOTES, Coded, EncoderWeights, Pairs, Row, by_length
from localmem.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Text = tuple[tuple[int, ...], int]  # the tokens, and which text of a pair it is: 0 or 1


class ApartBert(BertForSequenceClassification):
    """`config.localmem["apart"]` is how many layers see one text at a time; the rest is BERT's own."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        notes = getattr(config, NOTES, {})
        apart = notes.get(APART)
        if not isinstance(apart, int) or not 0 < apart < config.num_hidden_layers:
            raise BadInput(
                f"{apart} layers cannot read texts apart in a model of {config.num_hidden_layers}; give 1 to "
                f"{config.num_hidden_layers - 1}"
            )
        self.apart = apart

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor,
        labels: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Padded pairs as the tokenizer codes them, both texts in one pass: how it is trained. `labels` are unused."""
        kind = token_type_ids.masked_fill(attention_mask == 0, -1)  # padding attends to padding, and nothing to it
        states = self._embedded(input_ids, token_type_ids, _within(kind))
        states = self._through(states, kind[:, :, None] == kind[:, None, :], 0, self.apart)
        return SequenceClassifierOutput(logits=self.together(states, attention_mask))

    def alone(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        """(n, length, width): padded texts through the lower layers; `which` (n,) is each one's place in its pairs."""
        kind = which[:, None].expand_as(input_ids)
        places = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        states = self._embedded(input_ids, kind, places)
        return self._through(states, attention_mask.bool()[:, None, :].expand(-1, places.shape[1], -1), 0, self.apart)

    def together(self, states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """(n, labels): both texts' states one behind the other, through the layers above and the head."""
        seen = attention_mask.bool()[:, None, :].expand(-1, states.shape[1], -1)
        states = self._through(states, seen, self.apart, self.config.num_hidden_layers)
        logits: torch.Tensor = self.classifier(self.dropout(self.bert.pooler(states)))
        return logits

    def _embedded(self, ids: torch.Tensor, kinds: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.bert.embeddings(ids, token_type_ids=kinds, position_ids=places)
        return states

    def _through(self, states: torch.Tensor, seen: torch.Tensor, first: int, last: int) -> torch.Tensor:
        for layer in self.bert.encoder.layer[first:last]:
            states = layer(states, attention_mask=seen[:, None])
        return states


class ApartWeights(EncoderWeights):
    """An ApartBert that reads each text of a call once."""

    _model: ApartBert

    def _load(self, folder: Path, dtype: torch.dtype) -> "PreTrainedModel":
        model = ApartBert.from_pretrained(str(folder), dtype=dtype, attn_implementation="sdpa", local_files_only=True)
        self._positions = int(model.config.max_position_embeddings)
        return model

    def code(self, pairs: Pairs) -> list[Coded]:
        return self._coded(pairs, return_token_type_ids=True)

    def read(self, pairs: Pairs, size: int) -> list[Row]:
        """The probability of each label, in batches of `size` pairs of like length."""
        coded = [_texts(one) for one in self.code(pairs)]
        with torch.inference_mode():
            states = self._states([text for pair in coded for text in pair], size)
            return by_length(
                coded,
                lambda pair: sum(len(ids) for ids, _ in pair),
                size,
                lambda part: self._judged([torch.cat([states[text] for text in pair]) for pair in part]),
            )

    def _states(self, texts: Sequence[Text], size: int) -> dict[Text, torch.Tensor]:
        known = list(dict.fromkeys(texts))
        return dict(zip(known, by_length(known, lambda text: len(text[0]), size, self._alone), strict=True))

    def _alone(self, texts: Sequence[Text]) -> list[torch.Tensor]:
        """(length, width) of each."""
        ids, seen = _padded([torch.tensor(ids) for ids, _ in texts])
        which = torch.tensor([number for _, number in texts])
        device = self._model.device
        rows = self._model.alone(ids.to(device), seen.to(device), which.to(device))
        return [row[: len(ids)] for row, (ids, _) in zip(rows, texts, strict=True)]

    def _judged(self, states: Sequence[torch.Tensor]) -> list[Row]:
        padded, seen = _padded(states)
        logits = self._model.together(padded, seen)
        return list(logits.float().softmax(dim=-1).cpu().numpy())


def _within(kinds: torch.Tensor) -> torch.Tensor:
    """Each token's place in its own text, where (n, length) `kinds` tells texts apart; padding's is 0."""
    first = (kinds == 0).sum(dim=1, keepdim=True)
    places = torch.arange(kinds.shape[1], device=kinds.device).expand_as(kinds)
    return torch.where(kinds == 1, places - first, places).masked_fill(kinds < 0, 0)


def _texts(pair: Coded) -> tuple[Text, Text]:
    """A coded pair as its two texts, the first with its opening token, each with its closing one."""
    ids, kinds = pair["input_ids"], pair["token_type_ids"]
    first = len(kinds) - sum(kinds)
    return (tuple(ids[:first]), 0), (tuple(ids[first:]), 1)


def _padded(rows: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows as one tensor, and where it holds something. The masked rest may hold any token."""
    lengths = torch.tensor([len(row) for row in rows], device=rows[0].device)
    padded = pad_sequence(list(rows), batch_first=True)
    return padded, torch.arange(padded.shape[1], device=lengths.device) < lengths[:, None]
