// The rank groups of a mesh: for each axis, the ranks that differ from this rank only in that axis,
// and how they communicate.
//
//   auto mesh = MeshGroups::of(world, MeshShape({{"pipe", 1}, {"data", 2}, {"tensor", 2}}));   // all ranks of `world` call it
//   mesh->data().links().over(comm) ...    // gradients are averaged here
//   mesh->world().links().host ...         // all ranks agree here
//
// If the shape has the axes expert and expert_data instead of data, their product is data;
// refined() still has both.
//
// If an axis spans all ranks, its group is the world itself, so a mesh of one axis creates no
// group. Engines on the same ranks share a mesh.
#pragma once

#include <gannet/distributed.h>
#include <gannet/mesh.h>

#include <memory>
#include <string>

namespace gannet {

class MeshGroups {
 public:
  // The ranks of the shape are those of `world`, a process group of the program. Throws
  // Error(kConfig) if another engine of this process has laid out the same ranks differently.
  static std::shared_ptr<MeshGroups> of(std::shared_ptr<ProcessGroup> world, MeshShape shape);

  const MeshShape& shape() const { return shape_; }      // pipe, data, tensor
  const MeshShape& refined() const { return refined_; }  // the same, but with expert_data and expert if data is refined
  ProcessGroup& world() const { return *world_; }
  ProcessGroup& data() const { return *data_; }
  ProcessGroup* pipe() const { return pipe_.get(); }                // one rank of each stage; null: the axis has one rank
  ProcessGroup* tensor() const { return tensor_.get(); }            // null: the axis has one rank
  ProcessGroup* expert() const { return expert_.get(); }            // ranks with different experts; null: data is not refined
  ProcessGroup* expert_data() const { return expert_data_.get(); }  // ranks with the same experts; null: data is not refined
  // The ranks that together hold one model: those with the same data coordinate as this rank. Null
  // if this rank holds the whole model.
  ProcessGroup* model() const { return model_.get(); }

  // Whether this rank is the first of the world, which reports and prints for all ranks.
  bool is_first() const { return world_->rank() == 0; }
  // Whether this rank is the first along the tensor axis. Only that rank counts the values that are
  // the same along this axis.
  bool is_first_replica() const { return shape_.coordinate(world_->rank(), kTensorAxis) == 0; }
  // The number of pipeline stages. Each stage has a part of the model.
  uint32_t pipe_stages() const { return static_cast<uint32_t>(shape_.size(kPipeAxis)); }
  bool has_pipe_stages() const { return pipe_stages() > 1; }
  uint32_t pipe_stage() const { return shape_.coordinate(world_->rank(), kPipeAxis); }
  // This rank's coordinates: "pipe 1, data 0, tensor 0".
  std::string coordinates() const { return shape_.coordinates_text(world_->rank()); }

 private:
  MeshGroups(std::shared_ptr<ProcessGroup> world, MeshShape refined);
  std::shared_ptr<ProcessGroup> group_along(const MeshShape& shape, const std::string& axis) const;

  std::shared_ptr<ProcessGroup> world_;
  MeshShape refined_, shape_;
  // data_ is never null. A group that spans all ranks is world_ itself.
  std::shared_ptr<ProcessGroup> data_, tensor_, model_, expert_, expert_data_, pipe_;
};

}  // namespace gannet
