#include "activation/trace.h"

#include <gannet/error.h>

#include "activation/operators.h"
#include "base/format.h"
#include "base/text.h"

namespace gannet::activation {

void RegionRecord::require_unchanged(const std::string& region) const {
  for (const ReadTensor& read : reads_) {
    const auto tensor = read.tensor.lock();
    if (!tensor) continue;
    const auto& counter = tensor->version_counter();
    if (counter.enabled() && counter.current_version() != read.version)
      throw Error(
          ErrorCode::kOrder,
          formatted("a tensor of shape {} that {} reads was changed in place between its forward and backward",
                    shape_text(tensor->sizes()), region),
          "call backward before the optimizer's step and before anything else that writes into it, or give the region a clone");
    if (tensor->requires_grad() != read.requires_grad)
      throw Error(
          ErrorCode::kMismatch,
          formatted("requires_grad of a tensor of shape {} that {} reads was {} at its forward, and is {} at its backward",
                    shape_text(tensor->sizes()), region, read.requires_grad, tensor->requires_grad()),
          "freeze and unfreeze parameters after backward");
  }
}

RegionRecorder::RegionRecorder(const std::vector<at::Tensor>& inputs) : operators_(std::make_unique<Operators>()) {
  for (const at::Tensor& input : inputs)
    if (input.defined()) operators_->ignore(input);
}
RegionRecorder::~RegionRecorder() = default;

const std::string& RegionRecorder::current_operator() const { return operators_->current_operator(); }
std::vector<GeneratorSnapshot> RegionRecorder::drawn_from() const { return operators_->drawn_from(); }

RegionRecord RegionRecorder::finish() {
  operators_->finish();
  RegionRecord record;
  for (const auto& [key, kept] : operators_->kept()) record.writes_.push_back({kept.tensor, kept.values});
  for (const auto& weak : operators_->reads()) {
    const auto tensor = weak.lock();
    // Tensors that the region writes are restored for a recomputation, so later changes to them do
    // not matter.
    if (!tensor || operators_->has_kept(at::Tensor(tensor))) continue;
    const auto& counter = tensor->version_counter();
    record.reads_.push_back({weak, counter.enabled() ? counter.current_version() : 0, tensor->requires_grad()});
  }
  return record;
}

RecordReplay::RecordReplay(const RegionRecord& record) : operators_(std::make_unique<Operators>(/*is_replay=*/true)) {
  for (const RegionRecord::WrittenStorage& written : record.writes_) {
    operators_->keep(written.tensor);
    copy_quietly(written.tensor, written.before);
  }
}

RecordReplay::~RecordReplay() {
  operators_->finish();
  operators_->put_back();
}

const std::string& RecordReplay::current_operator() const { return operators_->current_operator(); }

}  // namespace gannet::activation
