/// A pipeline schedule written by the program, in the instructions of DeepSpeed's PipeSchedule.
///
///   struct AllForwardsFirst : gannet::pipe::PipeSchedule {
///     using PipeSchedule::PipeSchedule;
///     std::vector<std::vector<gannet::pipe::Instruction>> steps() const override {
///       using namespace gannet::pipe;
///       std::vector<std::vector<Instruction>> steps;
///       for (int64_t i = 0; i < num_micro_batches(); ++i) {
///         steps.push_back({is_first_stage() ? LoadMicroBatch(i) : RecvActivation(i), ForwardPass(i)});
///         if (!is_last_stage()) steps.back().push_back(SendActivation(i));
///       }
///       for (int64_t i = 0; i < num_micro_batches(); ++i) {
///         steps.emplace_back();
///         if (!is_last_stage()) steps.back().push_back(RecvGrad(i));
///         steps.back().push_back(BackwardPass(i));
///         if (!is_first_stage()) steps.back().push_back(SendGrad(i));
///       }
///       return steps;
///     }
///   };
///   auto net = gannet::pipe::Module(model, {.num_stages = 2, .schedule = gannet::pipe::schedule<AllForwardsFirst>()});
///
/// Forward and backward passes run in the order of the instructions. The engine derives sends and
/// receives from the passes; the instructions must contain the same ones. initialize checks the
/// schedule of all stages, and names the first instruction that is wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace gannet::pipe {

/// One instruction, and the buffer that it works on: where the stage keeps a micro-batch from its
/// forward to its backward. -1: none.
struct Instruction {
  enum class Kind : uint8_t {
    kLoadMicroBatch,  ///< the first stage's inputs, or the last stage's labels
    kRecvActivation,  ///< from the previous stage
    kForwardPass,
    kSendActivation,  ///< to the next stage
    kRecvGrad,        ///< from the next stage
    kBackwardPass,
    kSendGrad,         ///< to the previous stage
    kReduceTiedGrads,  ///< this and the next two run at the end of the step, whether or not they are listed
    kReduceGrads,
    kOptimizerStep,
  };
  Kind kind;
  int64_t buffer_id = -1;
};

inline Instruction LoadMicroBatch(int64_t buffer_id) { return {Instruction::Kind::kLoadMicroBatch, buffer_id}; }
inline Instruction RecvActivation(int64_t buffer_id) { return {Instruction::Kind::kRecvActivation, buffer_id}; }
inline Instruction ForwardPass(int64_t buffer_id) { return {Instruction::Kind::kForwardPass, buffer_id}; }
inline Instruction SendActivation(int64_t buffer_id) { return {Instruction::Kind::kSendActivation, buffer_id}; }
inline Instruction RecvGrad(int64_t buffer_id) { return {Instruction::Kind::kRecvGrad, buffer_id}; }
inline Instruction BackwardPass(int64_t buffer_id) { return {Instruction::Kind::kBackwardPass, buffer_id}; }
inline Instruction SendGrad(int64_t buffer_id) { return {Instruction::Kind::kSendGrad, buffer_id}; }
inline Instruction ReduceTiedGrads() { return {Instruction::Kind::kReduceTiedGrads}; }
inline Instruction ReduceGrads() { return {Instruction::Kind::kReduceGrads}; }
inline Instruction OptimizerStep() { return {Instruction::Kind::kOptimizerStep}; }

/// The schedule of one stage.
class PipeSchedule {
 public:
  PipeSchedule(int64_t micro_batches, int64_t stages, int64_t stage_id)
      : micro_batches_(micro_batches), stages_(stages), stage_id_(stage_id) {}
  virtual ~PipeSchedule() = default;

  /// The instructions of a step, in order. The grouping into inner lists has no meaning. Each time
  /// a buffer is filled, it takes the next micro-batch: 0, 1, 2 ...
  virtual std::vector<std::vector<Instruction>> steps() const = 0;
  /// The number of buffers; ids are below it. A buffer must not be filled again before the backward
  /// of its micro-batch.
  virtual int64_t num_pipe_buffers() const { return micro_batches_; }

  int64_t stage() const { return stage_id_; }
  int64_t num_stages() const { return stages_; }
  int64_t num_micro_batches() const { return micro_batches_; }
  bool is_first_stage() const { return stage_id_ == 0; }
  bool is_last_stage() const { return stage_id_ + 1 == stages_; }

 private:
  int64_t micro_batches_, stages_, stage_id_;
};

/// Makes the schedule of a stage; returns null if there is none for this number of micro-batches.
/// Every rank calls it for every stage, and must get the same schedules.
using MakeSchedule = std::function<std::unique_ptr<PipeSchedule>(int64_t micro_batches, int64_t stages, int64_t stage_id)>;

template <class Schedule>
MakeSchedule schedule() {
  return [](int64_t micro_batches, int64_t stages, int64_t stage_id) {
    return std::make_unique<Schedule>(micro_batches, stages, stage_id);
  };
}

}  // namespace gannet::pipe
