"""A Llama of random weights with a tokenizer of its own: python model.py FOLDER WIDTH LAYERS"""

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = ["a river that runs to the sea", "the answer is in the back of the book", "seven slots on one device", "who asks whom, and why"]
CHAT = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}</s>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"


def main(folder: str, width: int, layers: int) -> None:
    torch.manual_seed(1)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(WORDS, trainers.BpeTrainer(vocab_size=600, special_tokens=list(special.values()), initial_alphabet=alphabet))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.chat_template = CHAT
    fast.save_pretrained(folder)
    heads = max(2, width // 64)
    shape = LlamaConfig(
        vocab_size=640, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=heads, head_dim=64, max_position_embeddings=2048, bos_token_id=1, eos_token_id=2, pad_token_id=3,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(shape).to(torch.bfloat16).save_pretrained(folder)


main(sys.argv[1], *map(int, sys.argv[2:]))
