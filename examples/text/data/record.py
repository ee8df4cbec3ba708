#!/usr/bin/env python3
"""Makes the tokenizers of this folder and records what Hugging Face's tokenizers do with texts.json.

Usage: pip install tokenizers; record.py MINILM, the folder of all-MiniLM-L6-v2 (its tokenizer.json is asked, not copied).
What comes out is committed: recorded.json and *.tokenizer.json. The vocabularies are learnt from heed's own documentation.
"""
import json
import sys
from pathlib import Path

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = Path(__file__).parent
root = here.parents[2]
corpus = [path.read_text() for path in sorted([root / "README.md", *root.glob("docs/*.md")])]
corpus += ["Größe, naïve façade — 東京 タワー 🚀 ½ Ελληνικά, русский; don't we'll it's I'M 1234567 3.14159\n\n\t x  y   z"] * 3

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]


def single(token, id):
    return processors.TemplateProcessing(single=f"{token} $A", special_tokens=[(token, id)])


def llama3():
    """Byte-level; a pattern of its own; pieces that are tokens are not merged; special tokens beyond the vocabulary."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=500, initial_alphabet=BYTES))
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False), single("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))])
    return tokenizer


def qwen2():
    """Byte-level; composed letters; no token at the beginning; an added token that is text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=420, initial_alphabet=BYTES))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.add_tokens([tokenizers.AddedToken("<tool>", normalized=False), tokenizers.AddedToken("café", normalized=True)])
    return tokenizer


def gpt2():
    """Byte-level with GPT-2's own pattern, a space in front, digits alone; tokens that take spaces along."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=400, initial_alphabet=BYTES))
    tokenizer.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, rstrip=True),
                                  tokenizers.AddedToken("word", single_word=True)])
    return tokenizer


def letters(vocab_size, special, fallback):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=fallback, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(corpus if fallback else ["the memory of a token, and attention " * 9], trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special + (FALLBACK if fallback else []), limit_alphabet=60))
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = document["added_tokens"][:len(special)]  # the bytes are tokens of the model alone
    return document


def llama2():
    """Letters with byte fallback; spaces marked by the normalizer; the text is one piece."""
    document = letters(600, ["<unk>", "<s>", "</s>"], True)
    document["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = single("<s>", 1)
    return tokenizer


def mistral():
    """The same by Metaspace, which marks the beginning of the text only."""
    document = letters(600, ["<unk>", "<s>", "</s>"], True)
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = single("<s>", 1)
    return tokenizer


def gemma():
    """Nothing in front of the text; pieces end with their space."""
    document = letters(600, ["<pad>", "<eos>", "<bos>", "<unk>"], True)
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.post_processor = single("<bos>", 2)
    return tokenizer


def tiny():
    """97 tokens, for a checkpoint of that size; letters that are no token are unknown. The decoder is Metaspace's."""
    document = letters(97, ["<unk>", "<s>", "</s>"], False)
    missing = 97 - len(document["model"]["vocab"])
    for letter in [chr(code) for code in range(33, 127) if chr(code) not in document["model"]["vocab"]][:missing]:
        document["model"]["vocab"][letter] = len(document["model"]["vocab"])
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = single("<s>", 1)
    return tokenizer


def wordpiece(folder, texts):
    """all-MiniLM-L6-v2's ids, and those of its tokens that a test needs to find them."""
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    ids = [tokenizer.encode(text).ids for text in texts]
    used = sorted({id for row in ids for id in row} | {0, 100, 101, 102, 103})
    return {"size": tokenizer.get_vocab_size(), "tokens": {str(id): tokenizer.id_to_token(id) for id in used}, "ids": ids}


def lines(value):
    """JSON with a line a row, so that a change shows where it is."""
    if isinstance(value, dict) and value and "0" not in value:
        return "{" + ",\n".join(json.dumps(key) + ": " + lines(inner) for key, inner in value.items()) + "}"
    if isinstance(value, list) and value and not isinstance(value[0], int):
        return "[" + ",\n".join(lines(inner) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def main():
    texts = json.loads((here / "texts.json").read_text())
    recorded = {"source": f"tokenizers {tokenizers.__version__}", "wordpiece": wordpiece(sys.argv[1], texts), "byte_pair": {}}
    for make in (llama3, qwen2, gpt2, llama2, mistral, gemma, tiny):
        file = here / f"{make.__name__}.tokenizer.json"
        make().save(str(file), pretty=False)
        tokenizer = Tokenizer.from_file(str(file))
        rows = [tokenizer.encode(text).ids for text in texts]
        recorded["byte_pair"][make.__name__] = {
            "ids": rows, "text": [tokenizer.decode(row, skip_special_tokens=True) for row in rows]}
    (here / "recorded.json").write_text(lines(recorded) + "\n")


if __name__ == "__main__":
    main()
