// The layers of an exported module: the segments of all its programs under one list of names.
#pragma once

#include <gannet/exported.h>

#include <memory>
#include <string>
#include <vector>

#include "flow.h"
#include "segments.h"

namespace gannet::exported {

class Layout {
 public:
  // With `for_pipeline`, no module that contains other modules is used by two layers: such layers
  // are merged.
  Layout(const ExportedModule& module, bool for_pipeline);
  Layout(const Layout&) = delete;

  // The layers refer to this object and to the module.
  const std::vector<Layer>& layers() const { return layers_; }
  const NeededInputs& inputs() const { return needed_; }
  // Indexed by program.
  const std::vector<Segments>& programs() const { return programs_; }
  const std::vector<Flow>& flows() const { return flows_; }

  // The loss of a batch that fits the program.
  at::Tensor run(const NamedBatch& batch) const;
  at::Tensor loss(const Wire& wire) const;
  // A floating-point parameter of the layer, which has the dtype and device of this rank's module.
  const at::Tensor& leading(size_t layer) const { return leading_[layer]; }

 private:
  void choose(bool for_pipeline);
  void make_layers();
  Wire run_part(size_t layer, bool is_loss, const Wire& wire) const;

  const ExportedModule& module_;
  std::vector<Flow> flows_;
  std::vector<Cuts> cuts_;
  NeededInputs needed_;
  std::vector<Segments> programs_;
  std::vector<Layer> layers_;
  std::vector<at::Tensor> leading_;
};

}  // namespace gannet::exported
