"""Writes t5_tiny/ beside it: a small T5 as transformers saves it, random but for 200 steps (so that its
texts depend on their sources), with a vocabulary of examples/translation/numbers, and
expected.json: what transformers and sacrebleu compute.

    python -m venv VENV && VENV/bin/pip install torch==2.11.0 transformers==5.23.0 safetensors numpy sentencepiece protobuf sacrebleu
    VENV/bin/python tests/examples/data/make_t5_expected.py

tokens       of sentences, by transformers' T5Tokenizer: the end's token included
decoded      texts of tokens, without special ones
predictions  of the first 7 test pairs, greedy ("1") and with 3 beams ("3"), at most 11 new tokens
eval_loss    mean over the labels of the first 9 validation pairs, dropout off
bleu         texts, references, and the scores of corpus_bleu with tokenize="13a" and "none"
"""
import json
import pathlib
import random
import tempfile

import sacrebleu
import sentencepiece
import torch
import transformers as t

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE / "t5_tiny"
NUMBERS = HERE.parents[2] / "examples" / "translation" / "numbers" / "ro-en"
PREFIX = "translate English to Romanian: "


def pairs(split):
    return [json.loads(line)["translation"] for line in (NUMBERS / f"{split}.json").read_text(encoding="utf-8").splitlines()]


FOLDER.mkdir(exist_ok=True)
with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as text:
    for pair in pairs("train"):
        text.write(f"{PREFIX}{pair['en']}\n{pair['ro']}\n")
    text.flush()
    # The table of T5's own normalization is 240 kB: these sentences need none.
    sentencepiece.SentencePieceTrainer.train(
        input=text.name, model_prefix=str(FOLDER / "spiece"), model_type="unigram", vocab_size=72, pad_id=0, eos_id=1, unk_id=2,
        bos_id=-1, normalization_rule_name="identity", num_threads=1, minloglevel=2, hard_vocab_limit=False)
(FOLDER / "spiece.vocab").unlink()

torch.manual_seed(5)
config = t.T5Config(vocab_size=80, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4,
                    relative_attention_num_buckets=8, relative_attention_max_distance=16, dropout_rate=0.1,
                    decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, initializer_factor=1.0)
model = t.T5ForConditionalGeneration(config)
processor = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / "spiece.model"))


def sources_of(some):
    rows = [torch.tensor(processor.encode(PREFIX + pair["en"]) + [1]) for pair in some]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def labels_of(some):
    rows = [torch.tensor(processor.encode(pair["ro"]) + [1]) for pair in some]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)


optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for step in range(200):
    some = random.Random(step).sample(pairs("train"), 32)
    tokens = sources_of(some)
    model(input_ids=tokens, attention_mask=(tokens != 0).long(), labels=labels_of(some)).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
model.save_pretrained(FOLDER)
(FOLDER / "generation_config.json").unlink(missing_ok=True)
(FOLDER / "model.safetensors").chmod(0o644)

tokenizer = t.T5Tokenizer.from_pretrained(FOLDER, extra_ids=0)
sentences = [PREFIX + pair["en"] for pair in pairs("test")[:4]] + [pair["ro"] for pair in pairs("test")[:4]] + ["unu  zece!", ""]
tokens = [processor.encode(text) + [1] for text in sentences]
theirs = [tokenizer(text)["input_ids"] for text in sentences]
assert tokens == theirs, (tokens, theirs)

batch = sources_of(pairs("test")[:7])
predictions = {}
for beams in (1, 3):
    out = model.generate(batch, attention_mask=(batch != 0).long(), max_new_tokens=11, num_beams=beams, do_sample=False,
                         eos_token_id=1, pad_token_id=0)
    predictions[str(beams)] = [tokenizer.decode(row, skip_special_tokens=True) for row in out]

held_out = pairs("validation")[:9]
batch = sources_of(held_out)
with torch.no_grad():
    loss = model(input_ids=batch, attention_mask=(batch != 0).long(), labels=labels_of(held_out)).loss.item()

words = random.Random(1)
corpora = [
    (["two hundred"], ["two hundred and one"]),
    (["a b c d e f g", "h i j k"], ["a b c d e f h", "h i j l"]),
    (["The U.S. budget: $1,000.50 (or 3-4%), \"he said\" - it's [sic]..., 7-b."],
     ["The U.S. budget was $1,000.50 (or 3-5%), \"she said\" - it's [sic]..., 7-b!"]),
    (["no match at all here"], ["something else entirely was said"]),
    (["&quot;x&quot; &amp; y &lt;skipped&gt; <skipped> été, șase"], ["\"x\" & y été, șase trei"]),
    (["one"], ["one"]),
    ([" ".join(words.choices("abcdefg.,-", k=12)) for _ in range(20)], [" ".join(words.choices("abcdefg.,-", k=11)) for _ in range(20)]),
]
bleu = [{"texts": texts, "references": references,
         **{kind: sacrebleu.corpus_bleu(texts, [references], tokenize=kind).score for kind in ("13a", "none")}}
        for texts, references in corpora]

(FOLDER / "expected.json").write_text(json.dumps({
    "sentences": sentences, "tokens": tokens, "decoded": [tokenizer.decode(x, skip_special_tokens=True) for x in tokens],
    "predictions": predictions, "eval_loss": loss, "bleu": bleu}, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
print(predictions, loss, [(b["13a"], b["none"]) for b in bleu])
