#include "pipeline/instructions.h"

#include <gannet/error.h>

#include <map>
#include <string>

#include "base/format.h"

namespace gannet::pipeline {
namespace {

using pipe::Instruction;
using Kind = Instruction::Kind;

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"LoadMicroBatch", "RecvActivation", "ForwardPass",     "SendActivation", "RecvGrad",
                                    "BackwardPass",   "SendGrad",       "ReduceTiedGrads", "ReduceGrads",    "OptimizerStep"};
  return kNames[static_cast<size_t>(kind)];
}

// Contents of a buffer. kEmpty: nothing that is still needed.
enum class Holds { kEmpty, kInputs, kOutputs, kSentOutputs, kGradient, kInputGradient };

struct Buffer {
  Holds holds = Holds::kEmpty;
  int64_t micro_batch = 0;
};

class Converter {
 public:
  explicit Converter(const pipe::PipeSchedule& schedule) : schedule_(schedule) {}

  std::vector<Action> run() {
    const auto steps = schedule_.steps();
    for (step_ = 0; step_ < steps.size(); ++step_)
      for (const Instruction& instruction : steps[step_]) apply(instruction);
    for (const auto& [id, buffer] : buffers_)
      if (buffer.holds != Holds::kEmpty)
        throw Error(ErrorCode::kConfig,
                    formatted("stage {}: the schedule ends while buffer {} has micro-batch {} in it", schedule_.stage(), id,
                              buffer.micro_batch),
                    "run its backward, and send the gradient to the previous stage");
    return std::move(actions_);
  }

 private:
  [[noreturn]] void refuse(const Instruction& instruction, const std::string& reason, const std::string& next) const {
    throw Error(ErrorCode::kConfig,
                formatted("stage {}, step {}: {}({}) {}", schedule_.stage(), step_, name_of(instruction.kind),
                          instruction.buffer_id, reason),
                next);
  }

  // Moves a buffer from one state to the next; refuses the instruction if the buffer is in a different state.
  void change(const Instruction& instruction, Buffer& buffer, Holds from, Holds to, const char* needs) const {
    if (buffer.holds != from) refuse(instruction, needs, "put it after that instruction of the same buffer");
    buffer.holds = to;
  }

  void fill(const Instruction& instruction, Buffer& buffer) {
    if (buffer.holds != Holds::kEmpty)
      refuse(instruction, formatted("would overwrite micro-batch {}, whose backward has not run", buffer.micro_batch),
             "use another buffer, and let num_pipe_buffers() count it");
    buffer = {Holds::kInputs, next_++};
  }

  void apply(const Instruction& instruction) {
    if (instruction.kind >= Kind::kReduceTiedGrads) return;
    if (instruction.buffer_id < 0 || instruction.buffer_id >= schedule_.num_pipe_buffers())
      refuse(instruction, formatted("names a buffer that does not exist: num_pipe_buffers() is {}", schedule_.num_pipe_buffers()),
             "number the buffers from 0");
    Buffer& buffer = buffers_[instruction.buffer_id];
    const bool is_first = schedule_.is_first_stage(), is_last = schedule_.is_last_stage();
    const auto refuse_where = [&](bool is_there, const char* reason) {
      if (is_there) refuse(instruction, reason, "leave it out on this stage");
    };
    const auto part = static_cast<uint32_t>(schedule_.stage());
    switch (instruction.kind) {
      case Kind::kLoadMicroBatch:
        // On the last stage, this loads the labels of the micro-batch that the stage receives.
        refuse_where(!is_first && !is_last, "is for the first and the last stage, which take data");
        if (is_first) fill(instruction, buffer);
        return;
      case Kind::kRecvActivation:
        refuse_where(is_first, "is on the first stage, which has no previous one");
        return fill(instruction, buffer);
      case Kind::kForwardPass:
        change(instruction, buffer, Holds::kInputs, is_last ? Holds::kGradient : Holds::kOutputs, "has no inputs in its buffer");
        actions_.push_back({Action::kForward, part, buffer.micro_batch});
        return;
      case Kind::kSendActivation:
        refuse_where(is_last, "is on the last stage, which has no next one");
        return change(instruction, buffer, Holds::kOutputs, Holds::kSentOutputs, "has no results of a forward in its buffer");
      case Kind::kRecvGrad:
        refuse_where(is_last, "is on the last stage, which has no next one");
        return change(instruction, buffer, Holds::kSentOutputs, Holds::kGradient,
                      "comes before the SendActivation of its buffer");
      case Kind::kBackwardPass:
        change(instruction, buffer, Holds::kGradient, is_first ? Holds::kEmpty : Holds::kInputGradient,
               is_last ? "comes before the ForwardPass of its buffer" : "comes before the RecvGrad of its buffer");
        actions_.push_back({Action::kBackward, part, buffer.micro_batch});
        return;
      case Kind::kSendGrad:
        refuse_where(is_first, "is on the first stage, which has no previous one");
        return change(instruction, buffer, Holds::kInputGradient, Holds::kEmpty, "comes before the BackwardPass of its buffer");
      default:
        return;
    }
  }

  const pipe::PipeSchedule& schedule_;
  size_t step_ = 0;
  int64_t next_ = 0;  // next micro-batch
  std::map<int64_t, Buffer> buffers_;
  std::vector<Action> actions_;
};

}  // namespace

std::vector<Action> actions_of(const pipe::PipeSchedule& schedule) { return Converter(schedule).run(); }

}  // namespace gannet::pipeline
