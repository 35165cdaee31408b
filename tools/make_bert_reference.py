"""Creates the reference of the BERT tests: a tiny random model, its tokens and hidden states.

Requires `transformers` and `torch`, which the product does not depend on, so run it in a separate
environment: `python tools/make_bert_reference.py tests/trainer_module/models/data/bert`.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np
import torch
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

COUNT = 200
LENGTH = 36
BATCH = 16
WORDS = (
    "the film was good , bad plot ! acting ? unaffordable playing played player un believably",
    "café naïve Ångström Über straße İstanbul ΣΊΣΥΦΟΣ σοφός Ёлка ЩИ résumé ǅ ﬁne"
    " e\u0301 a\u030a\u0323",
    "東京 タワー 我爱北京 ことば 한국어 조선말 𠀀𪜀 豈 \uf900 ไทย हिन्दी العَرَبِيَّة עִבְרִית",
    "😀 👩\u200d👩\u200d👧 👍🏽 🇩🇪 ❤\ufe0f ☃ ™ © € £ ½ ² № ∑",
    "a\x00b tab\tend line\nfeed ret\rurn bell\x07 zero\u200bwidth soft\xadhyphen bad\ufffdone",
    "no\xa0break thin\u2009space para\u2029graph wide\u3000space \u2028 \u202eright \x85 \x0b \x1f",
    "$5.00 a+b=c <br/> ^_^ ~tilde `tick` |pipe| C# don't it's e-mail @you #tag … “so” «la» ¿qué? —",
    "x" * 100 + " " + "y" * 101 + " " + "é" * 100 + " " + "字" * 30 + " " + "Ab1" * 60,
    "1234567890 3.14 1e-5 IPv6 0x1F camelCase SHOUT [brackets] {braces} (round) [ CLS ]",
)


def make_texts() -> list[str]:
    """Returns the lines of words, each unusual word, and random mixtures of all words."""
    generator = random.Random(1)  # noqa: S311
    words = [word for line in WORDS for word in line.split(" ")]
    texts = ["", " ", *WORDS, *words]
    while len(texts) < COUNT:
        texts.append(" ".join(generator.choices(words, k=generator.randint(2, 30))))
    return texts[:COUNT]


def make_vocabulary(folder: Path, texts: list[str]) -> Path:
    """Writes a vocabulary of every second text, so that the other texts have unknown words."""
    learner = BertWordPieceTokenizer(lowercase=True)
    learner.train_from_iterator(texts[::2], vocab_size=500, min_frequency=1, show_progress=False)
    learner.save_model(str(folder))
    return folder / "vocab.txt"


def main(folder: Path) -> None:
    """Writes config.json, vocab.txt, model.safetensors, texts.json and states.npz."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = make_texts()
    vocabulary = make_vocabulary(folder, texts)
    tokens = vocabulary.read_text().splitlines()
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(tokens),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=80,
        max_position_embeddings=40,
    )
    model = BertForSequenceClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Initial zeros and ones would hide a missing bias or scale.
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    tokenizer = BertTokenizer(vocab=str(vocabulary))
    cased = BertTokenizer(vocab=str(vocabulary), do_lower_case=False)
    content = {
        "texts": texts,
        "ids": [tokenizer.encode(text) for text in texts],
        "cased_ids": [cased.encode(text) for text in texts],
    }
    (folder / "texts.json").write_text(json.dumps(content, separators=(",", ":")))
    inputs = tokenizer(
        texts[2 : 2 + BATCH],
        texts[-BATCH:],
        padding="max_length",
        truncation=True,
        max_length=LENGTH,
        return_tensors="pt",
    )
    with torch.no_grad():
        outputs = model.bert(**inputs, output_hidden_states=True)
    np.savez_compressed(
        folder / "states.npz",
        **{name: value.numpy().astype(np.int16) for name, value in inputs.items()},
        hidden=np.stack([state.numpy() for state in outputs.hidden_states]),
        pooled=outputs.pooler_output.numpy(),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
