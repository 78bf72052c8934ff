// The arrays of a piece that an update reads and writes: in memory, or in the open page for arrays
// on a tier.
//
//   const PieceArrays arrays(range, optimizer, second, with_average);
//   Pages pages(arrays.uses(), ...);
//   args.param = arrays.master(pages, piece);
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "params/pieces.h"
#include "params/range.h"
#include "update/pages.h"

namespace gannet {

inline void* at_element(const at::Tensor& flat, int64_t element) {
  return static_cast<char*>(flat.data_ptr()) + element * static_cast<int64_t>(flat.element_size());
}

// The arrays that an update reads and writes, on any tier.
class PieceArrays {
 public:
  // `second`: the second gradient, or null. `with_average`: includes the moving average of the
  // masters.
  PieceArrays(const Range& range, const Optimizer& optimizer, const Array* second, bool with_average)
      : range_(range), specs_(optimizer.states()), second_array_(second) {
    const Array& master = range.masters();
    master_ = add(master, true);
    out_ = range.has_master_copy() ? add(range.param, false) : kHere;
    for (const Array& state : range.states) states_.push_back(state.defined() ? add(state, true) : kHere);
    if (second) second_ = add(*second, true);
    if (with_average) average_ = add(range.average, true);
  }

  bool is_paged() const { return !uses_.empty(); }
  const std::vector<Pages::ArrayUse>& uses() const { return uses_; }

  void* master(const Pages& pages, const Piece& piece) const {
    if (master_ != kHere) return pages.at(master_, piece.place.own);
    return range_.has_master_copy() ? at_element(range_.master.here(), piece.place.own)
                                    : at_element(range_.param.here(), range_.param_place(piece.place));
  }
  void* out(const Pages& pages, const Piece& piece) const {
    if (!range_.has_master_copy()) return nullptr;
    return out_ != kHere ? pages.at(out_, piece.place.own) : at_element(range_.param.here(), range_.param_place(piece.place));
  }
  const void* second_gradient(const Pages& pages, const Piece& piece) const {
    if (!second_array_) return nullptr;
    return second_ != kHere ? pages.at(second_, piece.place.own) : at_element(second_array_->here(), piece.place.own);
  }
  void* average(const Pages& pages, const Piece& piece) const {
    return average_ != kHere ? pages.at(average_, piece.place.own) : at_element(range_.average.here(), piece.place.own);
  }
  void states(const Pages& pages, const Piece& piece, const Group& group, std::vector<void*>& into) const {
    into.resize(states_.size());
    for (size_t s = 0; s < into.size(); ++s)
      into[s] = group.group_states[s].defined() ? group.group_states[s].data_ptr()
                : specs_[s].has_matrices()      ? nullptr
                : states_[s] != kHere           ? pages.at(states_[s], piece.place.own)
                                                : at_element(range_.states[s].here(), place(specs_[s], s, piece));
  }

 private:
  static constexpr size_t kHere = static_cast<size_t>(-1);
  // PER_BLOCK states have one value per block; SERVED states have a part of every bucket.
  int64_t place(const Optimizer::State& state, size_t s, const Piece& piece) const {
    if (range_.is_served(state)) return piece.place.own / (range_.shard_numel / range_.states[s].numel());
    return piece.place.own / static_cast<int64_t>(state.block);
  }
  size_t add(const Array& array, bool reads) {
    if (array.is_here()) return kHere;
    uses_.push_back({&array, reads});
    return uses_.size() - 1;
  }

  const Range& range_;
  const std::vector<Optimizer::State>& specs_;
  const Array* const second_array_;
  std::vector<Pages::ArrayUse> uses_;
  size_t master_, out_, second_ = kHere, average_ = kHere;
  std::vector<size_t> states_;
};

}  // namespace gannet
