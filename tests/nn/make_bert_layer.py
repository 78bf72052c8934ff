"""Writes bert_layer.safetensors: a layer of transformers' BERT with its inputs, outputs and gradients, for bert_test.cpp.

Needs torch, transformers and safetensors: python make_bert_layer.py bert_layer.safetensors
"""
import sys

import torch
from safetensors.torch import save_file
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer

torch.manual_seed(0)
tensors = {}
for name, activation in (("erf", "gelu"), ("tanh", "gelu_new")):
    config = BertConfig(hidden_size=24, num_attention_heads=3, intermediate_size=96, hidden_act=activation, hidden_dropout_prob=0,
                        attention_probs_dropout_prob=0, layer_norm_eps=1e-12, attn_implementation="eager")
    layer = BertLayer(config)
    for parameter in layer.parameters():  # norms and biases that do nothing would hide where they are wrong
        torch.nn.init.normal_(parameter, std=0.3)
    for norm in (layer.attention.output.LayerNorm, layer.output.LayerNorm):
        torch.nn.init.normal_(norm.weight, mean=1.0, std=0.2)
    x = torch.randn(2, 9, 24, requires_grad=True)
    mask = torch.zeros(2, 1, 1, 9)
    mask[1, ..., 6:] = torch.finfo(torch.float32).min
    gradient = torch.randn(2, 9, 24)
    y = layer(x, mask)
    y = y[0] if isinstance(y, tuple) else y
    y.backward(gradient)
    tensors |= {f"{name}.x": x.detach(), f"{name}.mask": mask, f"{name}.gradient": gradient, f"{name}.y": y.detach(),
                f"{name}.x.grad": x.grad}
    heads, out = layer.attention.self, layer.attention.output
    parts = {
        "attn_qkvw": [heads.query.weight, heads.key.weight, heads.value.weight],
        "attn_qkvb": [heads.query.bias, heads.key.bias, heads.value.bias],
        "attn_ow": [out.dense.weight], "attn_ob": [out.dense.bias],
        "attn_nw": [out.LayerNorm.weight], "attn_nb": [out.LayerNorm.bias],
        "inter_w": [layer.intermediate.dense.weight], "inter_b": [layer.intermediate.dense.bias],
        "output_w": [layer.output.dense.weight], "output_b": [layer.output.dense.bias],
        "norm_w": [layer.output.LayerNorm.weight], "norm_b": [layer.output.LayerNorm.bias],
    }
    for key, of in parts.items():
        tensors[f"{name}.{key}"] = torch.cat([p.detach() for p in of])
        tensors[f"{name}.{key}.grad"] = torch.cat([p.grad for p in of])
save_file({key: value.contiguous() for key, value in tensors.items()}, sys.argv[1])
