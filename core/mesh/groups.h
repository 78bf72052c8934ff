// The groups of ranks that a mesh makes: for each axis the ranks that this one shares it with, and how they reach one another.
//
//   auto mesh = MeshGroups::of(world, MeshShape({{"pipe", 1}, {"data", 2}, {"tensor", 2}}));   // called by all of world's ranks
//   mesh->data().links().over(comm) ...    // gradients are averaged here
//   mesh->world().links().host ...         // and all ranks agree here
//
// A shape with the axes expert and expert_data in place of data has their product as data; refined() still has both.
//
// An axis of all ranks is the world's own group, so that a mesh of one axis makes no group. Engines on the same ranks share a
// mesh.
#pragma once

#include <gannet/distributed.h>
#include <gannet/mesh.h>

#include <memory>
#include <string>

namespace gannet {

class MeshGroups {
 public:
  // The shape's ranks are those of `world`, a group of the program's. Throws Error(kConfig) when an engine of this process has
  // laid out the same ranks in another way.
  static std::shared_ptr<MeshGroups> of(std::shared_ptr<ProcessGroup> world, MeshShape shape);

  const MeshShape& shape() const { return shape_; }      // pipe, data, tensor
  const MeshShape& refined() const { return refined_; }  // the same; expert_data and expert in place of data where it is refined
  ProcessGroup& world() const { return *world_; }
  ProcessGroup& data() const { return *data_; }
  ProcessGroup* tensor() const { return tensor_.get(); }            // null: the axis has one rank
  ProcessGroup* expert() const { return expert_.get(); }            // that hold different experts; null: data is not refined
  ProcessGroup* expert_data() const { return expert_data_.get(); }  // that hold the same ones; null likewise
  // The ranks that hold the parts of one model: those that differ in every coordinate but that of data. Null: this one alone.
  ProcessGroup* model() const { return model_.get(); }

  // Whether this rank reports and prints for all: the first of the world.
  bool is_first() const { return world_->rank() == 0; }
  // Whether this rank is the one that counts what is the same along the tensor axis.
  bool is_first_replica() const { return shape_.coordinate(world_->rank(), kTensorAxis) == 0; }
  // Stages of a pipeline, each with a part of the model.
  uint32_t pipe_stages() const { return static_cast<uint32_t>(shape_.size(kPipeAxis)); }
  bool has_pipe_stages() const { return pipe_stages() > 1; }
  uint32_t pipe_stage() const { return shape_.coordinate(world_->rank(), kPipeAxis); }
  // "pipe 1, data 0, tensor 0"
  std::string coordinates() const { return shape_.coordinates_text(world_->rank()); }

 private:
  MeshGroups(std::shared_ptr<ProcessGroup> world, MeshShape refined);
  std::shared_ptr<ProcessGroup> group_along(const MeshShape& shape, const std::string& axis) const;

  std::shared_ptr<ProcessGroup> world_;
  MeshShape refined_, shape_;
  // data_ is never null. A group of all ranks is world_ itself.
  std::shared_ptr<ProcessGroup> data_, tensor_, model_, expert_, expert_data_;
};

}  // namespace gannet
