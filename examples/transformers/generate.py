"""Continues texts with a GPT-2 of random weights, by transformers' own generate: the likeliest token each time."""

import gpumux
import torch
from batches import DEVICE, GPU, TEXTS, timed, tokens
from transformers import GPT2Config, GPT2LMHeadModel


class Generate:
    texts, allowed = TEXTS, 0
    differing = 0.02  # of the items: where two tokens are as likely, the last bit of a sum decides

    def __init__(self):
        torch.manual_seed(0)
        layers, width = (12, 768) if GPU else (4, 256)
        config = GPT2Config(n_layer=layers, n_embd=width, n_head=width // 64, bos_token_id=0, eos_token_id=None, pad_token_id=0)
        self.vocabulary, self.new = config.vocab_size, 32 if GPU else 8
        self.model = GPT2LMHeadModel(config).eval().to(DEVICE)  # in 32 bits: in 16 more tokens are as likely as another

    @gpumux.batch(max=16)
    @timed
    def __call__(self, items):
        texts = tokens(items, self.vocabulary, 32)
        ends = self.model.generate(texts, attention_mask=torch.ones_like(texts), do_sample=False, max_new_tokens=self.new)
        return ends[:, texts.shape[1] :].tolist()
