// GPT-2 as one would write it in C++ with every operator that Hugging Face's model calls in the export, one for one: the mask of
// packed sequences, additions of zero and slices of everything included. What an exported graph costs more than this is the
// cost of running a graph.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace same_operators {

using at::Tensor;

class Gpt2 {
 public:
  // `tensors`: parameters by the names of Hugging Face's GPT2LMHeadModel, the tied one once.
  Gpt2(const std::map<std::string, Tensor>& tensors, int64_t heads) : heads_(heads) {
    const auto named = [&](const std::string& name) { return tensors.at(name); };
    wte_ = tensors.contains("lm_head.weight") ? named("lm_head.weight") : named("transformer.wte.weight");
    wpe_ = named("transformer.wpe.weight");
    for (int layer = 0; tensors.contains("transformer.h." + std::to_string(layer) + ".ln_1.weight"); ++layer) {
      const auto pair = [&](const std::string& name) {
        const std::string full = "transformer.h." + std::to_string(layer) + "." + name;
        return Pair{named(full + ".weight"), named(full + ".bias")};
      };
      blocks_.push_back(
          {pair("ln_1"), pair("attn.c_attn"), pair("attn.c_proj"), pair("ln_2"), pair("mlp.c_fc"), pair("mlp.c_proj")});
    }
    ln_f_ = {named("transformer.ln_f.weight"), named("transformer.ln_f.bias")};
    width_ = wte_.size(1);
  }

  Tensor forward(const Tensor& tokens, const Tensor& labels) const {
    const int64_t rows = tokens.size(0), length = tokens.size(1);
    const Tensor places = (at::arange(length) + 0).unsqueeze(0);
    const Tensor words = at::embedding(wte_, tokens.view({-1, length}));
    const Tensor positions = at::embedding(wpe_, places).to(at::kFloat);
    Tensor x = words + positions;
    const Tensor mask = mask_of(places, rows, length);
    x = at::dropout(x, 0, true);
    for (const Block& block : blocks_) x = run(block, x, mask, rows, length);
    x = at::layer_norm(x, {width_}, ln_f_.weight, ln_f_.bias, 1e-5, false).view({-1, length, width_});
    const Tensor logits = at::linear(x.slice(0).slice(1), wte_).to(at::kFloat);
    const Tensor next = at::pad(labels, {0, 1}, "constant", -100).slice(1, 1).contiguous();
    return at::cross_entropy_loss(logits.view({-1, wte_.size(0)}), next.view({-1}).to(at::kLong));
  }

 private:
  struct Pair {
    Tensor weight, bias;
  };
  struct Block {
    Pair ln_1, c_attn, attn_c_proj, ln_2, c_fc, mlp_c_proj;
  };

  // Which tokens are in one sequence, by positions that rise by 1: [rows, 1, length, length].
  static Tensor mask_of(const Tensor& places, int64_t rows, int64_t length) {
    const Tensor all = places.expand({rows, -1});
    const Tensor steps = at::diff(all, 1, -1, all.slice(0).slice(1, 0, 1) - 1);
    const Tensor sequence = at::cumsum(at::ne(steps, 1), -1);
    const Tensor row = at::arange(rows), head = at::arange(1), query = at::arange(length) + 0, key = at::arange(length) + 0;
    const Tensor row_index = row.slice(0).unsqueeze(1).unsqueeze(2).unsqueeze(3);
    const Tensor head_index = head.unsqueeze(0).unsqueeze(2).unsqueeze(3);
    const Tensor query_index = query.unsqueeze(0).unsqueeze(1).slice(2).unsqueeze(3);
    const Tensor key_index = key.unsqueeze(0).unsqueeze(1).unsqueeze(2).slice(3);
    const Tensor is_causal =
        at::__and__(query_index.new_ones({}, at::TensorOptions().dtype(at::kBool)), at::le(key_index, query_index).to(at::kBool));
    const Tensor of_query = at::index(sequence, {row_index, query_index}), of_key = at::index(sequence, {row_index, key_index});
    return at::__and__(is_causal, at::eq(of_query, of_key).to(at::kBool)).expand({rows, -1, length, length});
  }

  static Tensor product(const Tensor& x, const Pair& pair, int64_t rows, int64_t length) {
    return at::addmm(pair.bias, x.view({-1, x.size(-1)}), pair.weight).view({rows, length, pair.bias.size(0)});
  }

  Tensor run(const Block& block, const Tensor& x, const Tensor& mask, int64_t rows, int64_t length) const {
    const int64_t width = width_;
    const Tensor normed = at::layer_norm(x, {width}, block.ln_1.weight, block.ln_1.bias, 1e-5, false);
    const auto parts = at::split(product(normed, block.c_attn, rows, length), width, 2);
    const auto by_head = [&](const Tensor& part) { return part.view({rows, length, -1, width / heads_}).transpose(1, 2); };
    const Tensor key = by_head(parts[1]), value = by_head(parts[2]), query = by_head(parts[0]);
    const double scale = 1 / std::sqrt(static_cast<double>(width / heads_));
    const Tensor attended = at::scaled_dot_product_attention(query, key, value, mask, 0, false, scale).transpose(1, 2);
    const Tensor projected = product(attended.reshape({rows, length, -1}), block.attn_c_proj, rows, length);
    const Tensor middle = at::dropout(projected, 0, true) + x;
    const Tensor wide =
        product(at::layer_norm(middle, {width}, block.ln_2.weight, block.ln_2.bias, 1e-5, false), block.c_fc, rows, length);
    const Tensor half = wide * 0.5, cube = at::pow(wide, 3.0) * 0.044715;
    const Tensor active = half * (at::tanh((wide + cube) * 0.7978845608028654) + 1.0);
    return middle + at::dropout(product(active, block.mlp_c_proj, rows, length), 0, true);
  }

  int64_t heads_, width_ = 0;
  Tensor wte_, wpe_;
  std::vector<Block> blocks_;
  Pair ln_f_;
};

}  // namespace same_operators
