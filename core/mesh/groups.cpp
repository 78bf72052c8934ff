#include "mesh/groups.h"

#include <gannet/error.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "mesh/request.h"

namespace gannet {
namespace {

// The meshes of this process's engines. Expired ones are removed when the next engine is created.
struct MeshRegistry {
  std::mutex mutex;
  std::vector<std::weak_ptr<MeshGroups>> meshes;
};

MeshRegistry& made() {
  static MeshRegistry& instance = *new MeshRegistry;
  return instance;
}

}  // namespace

std::shared_ptr<MeshGroups> MeshGroups::of(std::shared_ptr<ProcessGroup> world, MeshShape shape) {
  GANNET_CHECK(shape.world_size() == world->size());
  const std::lock_guard lock(made().mutex);
  auto& meshes = made().meshes;
  std::erase_if(meshes, [](const auto& one) { return one.expired(); });
  for (const auto& one : meshes) {
    const auto mesh = one.lock();
    if (!mesh || mesh->world_ != world) continue;
    if (mesh->refined_ == shape) return mesh;
    throw Error(
        ErrorCode::kConfig,
        formatted(
            "{} ranks are to be laid out as {}, and another engine or zero::Init of this process lays the same ranks out as {}",
            world->size(), shape.text(), mesh->refined_.text()),
        "give both the same mesh, or each a process_group of its own");
  }
  const std::shared_ptr<MeshGroups> mesh(new MeshGroups(std::move(world), std::move(shape)));
  meshes.push_back(mesh);
  return mesh;
}

MeshGroups::MeshGroups(std::shared_ptr<ProcessGroup> world, MeshShape refined)
    : world_(std::move(world)), refined_(std::move(refined)), shape_(unrefined(refined_)) {
  // Every rank must create the same groups in the same order, because subset() numbers the groups
  // and uses the number in the name.
  data_ = group_along(shape_, kDataAxis);
  if (shape_.size(kTensorAxis) > 1) tensor_ = group_along(shape_, kTensorAxis);
  if (refined_.has(kExpertAxis)) {
    expert_ = group_along(refined_, kExpertAxis);
    expert_data_ = group_along(refined_, kExpertDataAxis);
  }
  if (shape_.world_size() == shape_.size(kDataAxis)) return;
  std::vector<std::string> others;
  for (const MeshAxis& axis : shape_.axes())
    if (axis.name != kDataAxis) others.push_back(axis.name);
  model_ = group_along(shape_.combine(others, "model of this rank"), "model of this rank");
  if (has_pipe_stages()) pipe_ = tensor_ ? group_along(shape_, kPipeAxis) : model_;
}

// Every rank of the world creates every group of the axis in the same order, and keeps its own.
std::shared_ptr<ProcessGroup> MeshGroups::group_along(const MeshShape& shape, const std::string& axis) const {
  if (shape.size(axis) == shape.world_size()) return world_;
  if (!shape.has(axis)) {  // each rank forms its own group
    std::shared_ptr<ProcessGroup> own;
    for (uint32_t rank = 0; rank < shape.world_size(); ++rank)
      if (auto alone = world_->subset({rank})) own = std::move(alone);
    return own;
  }
  std::shared_ptr<ProcessGroup> own;
  for (const auto& ranks : shape.groups(axis))
    if (auto group = world_->subset(ranks)) own = std::move(group);
  return own;
}

}  // namespace gannet
