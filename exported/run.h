// Runs a program. Every step is a boxed call of the dispatcher, so that autograd, autocast, ZeRO's
// gathers and the profiler see its operators as they see those of a model written in C++.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <vector>

#include "program.h"

namespace gannet::exported {

// An empty vector for the values of a call. Its memory is that of a vector which this thread gave
// back, so that a call allocates none for its values once others have run; at most eight empty
// vectors are kept for each thread.
std::vector<c10::IValue> take_values();
void give_back(std::vector<c10::IValue> values);

// `inputs`: one for each placeholder of the program. Returns the loss. The state of a call is local
// to it: several threads may call this at once, and a call may begin within another. Throws
// Error(kArgument) for an operator that failed, with its name, layer and arguments; errors of Gannet
// and out-of-memory errors pass unchanged.
at::Tensor run(const Program& program, std::vector<c10::IValue> inputs, c10::Device device);

// Runs a routine of the program, or part of one, and returns its outputs. `inputs`: one for each of
// its inputs.
std::vector<c10::IValue> run_routine(const Program& program, const Routine& routine, std::vector<c10::IValue> inputs,
                                     c10::Device device);

// Returns the loss of a program. Throws Error(kArgument) if it is not a scalar.
void require_loss(const Program& program, const at::Tensor& loss);

}  // namespace gannet::exported
