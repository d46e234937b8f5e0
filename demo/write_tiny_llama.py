"""Write a tiny Llama with random weights: `python write_tiny_llama.py DIRECTORY`, in a Python that has transformers.

vLLM loads it in no time and answers nonsense. A vocabulary of bytes takes any text; nothing is fetched.
"""

from __future__ import annotations

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CONTEXT = 512
SPECIAL = ("<unk>", "<s>", "</s>")
TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


def main(path: str) -> None:
    tokens = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = dict(zip(("unk_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    words = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=CONTEXT, **special)
    words.chat_template = TEMPLATE
    words.save_pretrained(path)
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=320,  # of these 259 are tokens; what goes over ranks has a round number
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,  # one for each rank of two
        max_position_embeddings=CONTEXT,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(path)


if __name__ == "__main__":
    main(sys.argv[1])
