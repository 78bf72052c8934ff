// Error-compensated 1-bit averaging over ranks (Tang et al. 2021, 1-bit Adam; DeepSpeed's
// compressed all-reduce) of one piece of a parameter group.
//
//   worker   y = x + e_w;  s_w = |y| / sqrt(numel);  sends sign(y) and s_w;  e_w <- y - s_w sign(y)
//   server   z = mean over ranks of s_w sign(y), + e_s;  sends sign(z) and s_s = |z| / sqrt(numel);  e_s <- z - s_s sign(z)
//   result   s_s sign(z), the same on every rank
//
// Each rank is a worker for the whole piece and the server of an equal part of it. Each tensor has
// its own scale (a server has one for its part of each tensor), because DeepSpeed compresses tensor
// by tensor: a small tensor next to a large one keeps its magnitude.
//
//   each rank sends    numel / 8 * (ranks - 1) / ranks bytes of signs, twice, and two fp32 numbers per tensor and other rank
#pragma once

#include <cstdint>
#include <gannet/sdk.hpp>
#include <vector>

#include "optimizers/onebit/kernel.h"

namespace gannet::rules {

class Compressor {
 public:
  explicit Compressor(const sdk::HostServices& host) : host_(host) {}

  /// Computes result <- C(beta momentum + (1 - beta) gradient) for the elements of tensors.
  /// `result` may be the momentum. `worker_error` is [numel], and `server_error` is [numel /
  /// ranks]. Every rank must call this for the same piece.
  void average(const gannet_update_args& args, double beta, const float* momentum, float* worker_error, float* server_error,
               float* result);

 private:
  struct CompressedPart {  // part of a tensor, as indices in the piece
    uint64_t begin, numel;
  };
  struct Block {  // a thread's unit of work
    uint64_t part, begin, numel;
  };
  static void cut(const std::vector<CompressedPart>& parts, std::vector<Block>& blocks);
  void cut_piece(const gannet_update_args& args);
  void work(const gannet_update_args& args, double beta, const float* momentum, float* error);
  void exchange();
  void serve(float* error);
  void gather();
  void expand(float* momentum) const;
  void scales_of(const std::vector<CompressedPart>& parts, const std::vector<Block>& blocks, float* scales) const;

  const sdk::HostServices& host_;
  uint32_t rank_ = 0, ranks_ = 1;
  uint64_t chunk_ = 0;                               // number of elements that each rank serves
  std::vector<CompressedPart> tensors_;              // the tensors in the piece
  std::vector<std::vector<CompressedPart>> served_;  // for each rank, the parts of tensors in its chunk
  std::vector<uint64_t> first_served_;               // for each rank, the first tensor of its chunk
  std::vector<Block> blocks_, served_blocks_;
  std::vector<double> squares_;  // one per block or per served block
  // Kept between steps: the bits of the piece, the bits of this rank's chunk from every rank, and
  // the bits of the served chunk.
  std::vector<uint8_t> sent_, received_, served_bits_;
  std::vector<float> scales_, all_scales_;                // shapes [tensors] and [ranks][tensors]
  std::vector<float> served_scales_, all_served_scales_;  // shapes [most in a chunk] and [ranks][most in a chunk]
};

}  // namespace gannet::rules
