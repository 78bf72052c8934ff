// A program divided into parts: a routine for each layer, and one for the loss.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <gannet/wire.h>

#include <cstddef>
#include <string>
#include <vector>

#include "cuts.h"

namespace gannet::exported {

// A part of a program. Its inputs are the values that cross into it, followed by the batch inputs
// that it or a later layer needs; its outputs are the same for the next part.
struct Segment {
  std::string name;
  size_t first = 0, last = 0;        // its fixed steps are in [first, last)
  std::vector<size_t> values;        // slots of the outermost routine, which cross into it
  std::vector<std::string> inputs;   // of the batch
  std::vector<size_t> given;         // placeholders: parameters, buffers and constants
  std::vector<bool> is_number;       // by value: whether it is a number, which is sent as a zero-dimensional tensor
  Routine routine;                   // its inputs are `values`, `inputs` and `given`
  std::vector<std::string> tensors;  // parameters and buffers that it uses
};

struct Segments {
  std::vector<Segment> layers;
  Segment loss;
};

// The batch inputs that the layers need and those that the loss needs, in the order of the file.
struct NeededInputs {
  std::vector<std::string> layers, loss;
};
NeededInputs inputs_needed(const Program& program, const Flow& flow, const Cuts& cuts);

// `needed`: the inputs passed to the first layer and to the loss, which may be more than the
// program needs.
Segments segments_of(const Program& program, const Flow& flow, const Cuts& cuts, const NeededInputs& needed);

// Runs a segment. `given`: its parameters, buffers and constants.
Wire run_segment(const Program& program, const Segment& segment, const Wire& wire, const std::vector<at::Tensor>& given,
                 c10::Device device);

}  // namespace gannet::exported
