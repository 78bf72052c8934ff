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
  // `for_pipeline`: a module with modules inside of it is used by one layer alone.
  Layout(const ExportedModule& module, bool for_pipeline);
  Layout(const Layout&) = delete;

  // They refer to this object and to the module.
  const std::vector<Layer>& layers() const { return layers_; }
  const NeededInputs& inputs() const { return needed_; }
  // By the number of the program.
  const std::vector<Segments>& programs() const { return programs_; }
  const std::vector<Flow>& flows() const { return flows_; }

  // The loss of a batch that fits the program.
  at::Tensor run(const NamedBatch& batch) const;
  at::Tensor loss(const Wire& wire) const;
  // A floating-point parameter of the layer, whose dtype and device are those of this rank's module.
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
