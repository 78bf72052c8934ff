/// A program's own division of the ranks: the six calls of Megatron's `mpu`, by which DeepSpeed
/// learns which ranks share a model and which ranks divide the data. Groups are lists of ranks.
///
///   struct MyMpu : gannet::Mpu {                       // of four ranks, two share each model
///     uint32_t get_model_parallel_rank() const override { return rank % 2; }
///     uint32_t get_model_parallel_world_size() const override { return 2; }
///     std::vector<uint32_t> get_model_parallel_group() const override { return {rank / 2 * 2, rank / 2 * 2 + 1}; }
///     uint32_t get_data_parallel_rank() const override { return rank / 2; }
///     uint32_t get_data_parallel_world_size() const override { return 2; }
///     std::vector<uint32_t> get_data_parallel_group() const override { return {rank % 2, rank % 2 + 2}; }
///     uint32_t rank;
///   };
///   gannet::MeshShape mesh = gannet::mesh_of(answers_of_every_rank);   // "data 2 x tensor 2"
#pragma once

#include <gannet/mesh.h>

#include <vector>

namespace gannet {

class Mpu {
 public:
  virtual ~Mpu() = default;
  virtual uint32_t get_model_parallel_rank() const = 0;
  virtual uint32_t get_model_parallel_world_size() const = 0;
  virtual std::vector<uint32_t> get_model_parallel_group() const = 0;  ///< world ranks, ordered by their rank in the group
  virtual uint32_t get_data_parallel_rank() const = 0;
  virtual uint32_t get_data_parallel_world_size() const = 0;
  virtual std::vector<uint32_t> get_data_parallel_group() const = 0;
};

/// The values that one rank's mpu returned.
struct MpuAnswers {
  uint32_t model_rank = 0, model_size = 1;
  std::vector<uint32_t> model_group;
  uint32_t data_rank = 0, data_size = 1;
  std::vector<uint32_t> data_group;
  bool operator==(const MpuAnswers&) const = default;
};
MpuAnswers answers_of(const Mpu& mpu);

/// The mesh with axes data and tensor that the mpus of all ranks describe; `by_rank` has one entry
/// per rank. The ranks of the mesh may be in any order. Throws Error(kArgument), with a rank and
/// its answers, if the groups do not tile the world: each rank must be in exactly one model group
/// and one data group, and each model group must have exactly one rank in common with each data
/// group.
MeshShape mesh_of(const std::vector<MpuAnswers>& by_rank);

}  // namespace gannet
