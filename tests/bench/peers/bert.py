"""bert.py: a BERT of transformers as the converters want it: ids and mask in, hidden states out."""

import torch
import transformers


class Bert(torch.nn.Module):
    def __init__(self, model, attention):
        super().__init__()
        self.bert = transformers.BertModel.from_pretrained(
            model, attn_implementation=attention, add_pooling_layer=False
        ).eval()

    def forward(self, input_ids, attention_mask):
        return self.bert(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]


def example():
    """Inputs to trace it with."""
    ids = torch.randint(1000, 20000, (2, 16))
    return ids, torch.ones_like(ids)
