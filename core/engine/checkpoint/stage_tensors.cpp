#include "engine/checkpoint/stage_tensors.h"

#include <ATen/ops/empty.h>

#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "base/format.h"
#include "control/world.h"

namespace gannet {
namespace {

// One line per tensor: dtype, number of dimensions, sizes, name.
std::string described(const NamedTensors& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    text += formatted("{} {}", static_cast<int>(tensor.scalar_type()), tensor.dim());
    for (const int64_t size : tensor.sizes()) text += formatted(" {}", size);
    text += formatted(" {}\n", name);
  }
  return text;
}

NamedTensors allocated(const std::string& text) {
  NamedTensors tensors;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    int dtype = 0;
    size_t dim = 0;
    words >> dtype >> dim;
    std::vector<int64_t> sizes(dim);
    for (int64_t& size : sizes) words >> size;
    words.get();  // the space before the name
    std::string name;
    std::getline(words, name);
    tensors.emplace_back(name, at::empty(sizes, static_cast<at::ScalarType>(dtype)));
  }
  return tensors;
}

}  // namespace

uint32_t first_rank_of_stage(const MeshGroups& mesh) {
  return mesh.has_pipe_stages() ? mesh.shape().groups(kPipeAxis)[0][mesh.pipe_stage()] : 0;
}

void gather_stages(const MeshGroups& mesh, NamedTensors& tensors) {
  if (!mesh.has_pipe_stages()) return;
  HostGroup& stages = mesh.pipe()->links().host;
  const std::vector<std::string> texts = stages.gather_texts(described(tensors));
  if (stages.rank() > 0) {
    for (const auto& [name, tensor] : tensors) {
      if (tensor.numel() == 0) continue;
      const at::Tensor bytes = tensor.to(at::kCPU).contiguous();
      stages.start_exchange({{0, bytes.const_data_ptr(), bytes.nbytes()}}, {}).wait();
    }
    return;
  }
  std::set<std::string> known;
  for (const auto& [name, tensor] : tensors) known.insert(name);
  for (uint32_t stage = 1; stage < stages.size(); ++stage)
    for (auto& [name, tensor] : allocated(texts[stage])) {
      if (tensor.numel() > 0) stages.start_exchange({}, {{stage, tensor.data_ptr(), tensor.nbytes()}}).wait();
      if (known.insert(name).second) tensors.emplace_back(name, std::move(tensor));
    }
}

}  // namespace gannet
