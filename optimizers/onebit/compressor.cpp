#include "optimizers/onebit/compressor.h"

#include <algorithm>
#include <cmath>
#include <gannet/sdk_rule.hpp>

namespace gannet::rules {
namespace {

// In a piece, tensors (range_alignment) and chunks begin at multiples of this.
constexpr uint64_t kBitsAlignment = 32;

}  // namespace

// Cuts parts into blocks. Blocks begin at multiples of sdk::kGrain in their part, so that sums over
// them do not depend on the number of threads.
void Compressor::cut(const std::vector<CompressedPart>& parts, std::vector<Block>& blocks) {
  blocks.clear();
  for (uint64_t p = 0; p < parts.size(); ++p)
    for (uint64_t done = 0; done < parts[p].numel; done += sdk::kGrain)
      blocks.push_back({p, parts[p].begin + done, std::min(sdk::kGrain, parts[p].numel - done)});
}

void Compressor::cut_piece(const gannet_update_args& args) {
  rank_ = host_.rank();
  ranks_ = host_.world_size();
  if (args.numel % (kBitsAlignment * ranks_) != 0)
    throw sdk::Failure(GANNET_INTERNAL, "the host gave a piece whose length is not a multiple of 32 for each rank");
  chunk_ = args.numel / ranks_;
  tensors_.clear();
  for (uint64_t s = 0; s < args.segment_count; ++s) {
    const gannet_segment& segment = sdk::segment(args, s);
    if (segment.offset % kBitsAlignment != 0)
      throw sdk::Failure(GANNET_INTERNAL, "the host gave a tensor that begins at no multiple of 32 elements of its piece");
    tensors_.push_back({segment.offset, segment.numel});
  }
  served_.assign(ranks_, {});
  first_served_.assign(ranks_, 0);
  uint64_t most = 0;
  for (uint32_t r = 0; r < ranks_; ++r) {
    for (uint64_t t = 0; t < tensors_.size(); ++t) {
      const uint64_t first = std::max(tensors_[t].begin, r * chunk_);
      const uint64_t last = std::min(tensors_[t].begin + tensors_[t].numel, (r + 1) * chunk_);
      if (first >= last) continue;
      if (served_[r].empty()) first_served_[r] = t;
      served_[r].push_back({first, last - first});
    }
    most = std::max<uint64_t>(most, served_[r].size());
  }
  cut(tensors_, blocks_);
  cut(served_[rank_], served_blocks_);
  squares_.resize(std::max(blocks_.size(), served_blocks_.size()));
  sent_.resize(args.numel / 8);  // the bits between tensors stay zero or are never read
  received_.resize(args.numel / 8);
  served_bits_.resize(chunk_ / 8);
  scales_.resize(tensors_.size());
  all_scales_.resize(tensors_.size() * ranks_);
  served_scales_.assign(most, 0);
  all_served_scales_.resize(most * ranks_);
}

// Computes |values| / sqrt(numel) of each part, adding the squares of the part's blocks in order.
void Compressor::scales_of(const std::vector<CompressedPart>& parts, const std::vector<Block>& blocks, float* scales) const {
  std::vector<double> sums(parts.size());
  for (uint64_t b = 0; b < blocks.size(); ++b) sums[blocks[b].part] += squares_[b];
  for (uint64_t p = 0; p < parts.size(); ++p)
    scales[p] = parts[p].numel > 0 ? static_cast<float>(std::sqrt(sums[p] / static_cast<double>(parts[p].numel))) : 0;
}

void Compressor::work(const gannet_update_args& args, double beta, const float* momentum, float* error) {
  const auto decay = static_cast<float>(beta);
  const MomentumInputs from{momentum, args.grad, args.grad_dtype, decay, 1 - decay, static_cast<float>(args.grad_scale)};
  host_.parallel_for(blocks_.size(), 1, [&](uint64_t begin, uint64_t end) {
    for (uint64_t b = begin; b < end; ++b)
      squares_[b] = add_error_cpu(from, error, blocks_[b].begin, blocks_[b].begin + blocks_[b].numel);
  });
  scales_of(tensors_, blocks_, scales_.data());
  host_.parallel_for(blocks_.size(), 1, [&](uint64_t begin, uint64_t end) {
    for (uint64_t b = begin; b < end; ++b) {
      const Block& block = blocks_[b];
      compress_cpu(error + block.begin, block.numel, scales_[block.part], sent_.data() + block.begin / 8);
    }
  });
}

void Compressor::exchange() {
  gannet_host_collective args{};
  args.operation = GANNET_HOST_ALL_TO_ALL;
  args.dtype = GANNET_UINT8;
  args.send = sent_.data();
  args.recv = received_.data();
  args.count = chunk_ / 8;
  host_.collective(args);
  args.operation = GANNET_HOST_ALL_GATHER;
  args.dtype = GANNET_FLOAT32;
  args.send = scales_.data();
  args.recv = all_scales_.data();
  args.count = scales_.size();
  host_.collective(args);
}

void Compressor::serve(float* error) {
  const uint64_t begins = rank_ * chunk_, first = first_served_[rank_];
  host_.parallel_for(served_blocks_.size(), 1, [&](uint64_t begin, uint64_t end) {
    std::vector<float> scales(ranks_);
    for (uint64_t b = begin; b < end; ++b) {
      const Block& block = served_blocks_[b];
      const uint64_t at = block.begin - begins;
      for (uint32_t r = 0; r < ranks_; ++r) scales[r] = all_scales_[r * tensors_.size() + first + block.part];
      squares_[b] = average_cpu(received_.data() + at / 8, chunk_ / 8, scales.data(), ranks_, error + at, block.numel);
    }
  });
  scales_of(served_[rank_], served_blocks_, served_scales_.data());
  host_.parallel_for(served_blocks_.size(), 1, [&](uint64_t begin, uint64_t end) {
    for (uint64_t b = begin; b < end; ++b) {
      const Block& block = served_blocks_[b];
      const uint64_t at = block.begin - begins;
      compress_cpu(error + at, block.numel, served_scales_[block.part], served_bits_.data() + at / 8);
    }
  });
}

// Gathers the servers' bits into sent_, whose own contents have already been sent.
void Compressor::gather() {
  gannet_host_collective args{};
  args.operation = GANNET_HOST_ALL_GATHER;
  args.dtype = GANNET_UINT8;
  args.send = served_bits_.data();
  args.recv = sent_.data();
  args.count = chunk_ / 8;
  host_.collective(args);
  args.dtype = GANNET_FLOAT32;
  args.send = served_scales_.data();
  args.recv = all_served_scales_.data();
  args.count = served_scales_.size();
  host_.collective(args);
}

void Compressor::expand(float* momentum) const {
  const uint64_t most = served_scales_.size();
  std::vector<Block> blocks, all;
  for (uint32_t r = 0; r < ranks_; ++r) {
    cut(served_[r], blocks);
    for (Block& block : blocks) block.part += r * most;  // becomes the index of the block's scale
    all.insert(all.end(), blocks.begin(), blocks.end());
  }
  host_.parallel_for(all.size(), 1, [&](uint64_t begin, uint64_t end) {
    for (uint64_t b = begin; b < end; ++b)
      expand_cpu(sent_.data() + all[b].begin / 8, all[b].numel, all_served_scales_[all[b].part], momentum + all[b].begin);
  });
}

void Compressor::average(const gannet_update_args& args, double beta, const float* momentum, float* worker_error,
                         float* server_error, float* result) {
  cut_piece(args);
  work(args, beta, momentum, worker_error);
  exchange();
  serve(server_error);
  gather();
  expand(result);
}

}  // namespace gannet::rules
