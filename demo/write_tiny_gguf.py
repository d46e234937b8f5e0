"""Write a tiny model with random weights: `python write_tiny_gguf.py FILE`, in a Python that has gguf and numpy.

llama-server loads it in no time and answers nonsense. A vocabulary of bytes takes any text. Input 0 of the last layer
is a bias against the bytes that print nothing, so that the nonsense can be read.
"""

from __future__ import annotations

import sys

import gguf
import numpy as np

WIDTH, HEADS, KEY_HEADS, FEED, LAYERS, CONTEXT = 64, 4, 2, 128, 2, 4096
SPECIAL = ("<unk>", "<s>", "</s>")
LETTERS = [f"▁{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]


def main(path: str) -> None:
    tokens = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *LETTERS]
    writer = gguf.GGUFWriter(path, "llama")
    describe(writer, tokens)
    for name, tensor in tensors(len(tokens)):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def describe(writer: gguf.GGUFWriter, tokens: list[str]) -> None:
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0 if index < 259 else -float(index) for index in range(len(tokens))])
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)])  # unknown, control, byte, normal
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}\n{% endfor %}")


def tensors(vocabulary: int) -> list[tuple[str, np.ndarray]]:
    random = np.random.default_rng(1)

    def noise(*shape: int) -> np.ndarray:
        return random.uniform(-0.2, 0.2, shape).astype(np.float32)

    ones, keys = np.ones(WIDTH, np.float32), WIDTH // HEADS * KEY_HEADS
    embedding, output = noise(vocabulary, WIDTH), noise(vocabulary, WIDTH)
    embedding[:, 0] = np.sqrt(WIDTH)  # what input 0 of the last layer sees, whatever was said
    output[:, 0] = np.where(np.arange(vocabulary) > 259, 0.0, -30.0)
    made = [("token_embd.weight", embedding), ("output_norm.weight", ones), ("output.weight", output)]
    for layer in range(LAYERS):
        sizes = {
            "attn_q": (WIDTH, WIDTH),
            "attn_k": (keys, WIDTH),
            "attn_v": (keys, WIDTH),
            "attn_output": (WIDTH, WIDTH),
            "ffn_gate": (FEED, WIDTH),
            "ffn_up": (FEED, WIDTH),
            "ffn_down": (WIDTH, FEED),
        }
        parts = {name: noise(*shape) for name, shape in sizes.items()}
        parts["attn_output"][0] = parts["ffn_down"][0] = 0.0  # nothing moves the bias
        made += [(f"blk.{layer}.{name}.weight", part) for name, part in parts.items()]
        made += [(f"blk.{layer}.{name}.weight", ones) for name in ("attn_norm", "ffn_norm")]
    return made


if __name__ == "__main__":
    main(sys.argv[1])
