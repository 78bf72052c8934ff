// The Trainer's errors about pipelines, and a query of their engine.
#include <gannet/error.h>
#include <gannet/trainer_pipeline.h>

namespace gannet::detail {

void fail_without_layers() {
  throw Error(
      ErrorCode::kConfig, "the config asks for stages of a pipeline, and the Trainer's model has no layers()",
      "give the model layers() or pipeline_layers() (docs/pipeline.md), or pass the Trainer a pipe::Module of its layers");
}

void fail_without_micro_batch() {
  throw Error(ErrorCode::kArgument, "a pipeline does not know the inputs and the labels of this type of batch",
              "write gannet::pipe::MicroBatch to_micro_batch(const Batch&) in the namespace of the type (gannet/pipe.h)");
}

void fail_without_pipeline_loss() {
  throw Error(ErrorCode::kConfig,
              "the config asks for stages of a pipeline, and the Trainer's model computes its loss in forward(data, target)",
              "give the model pipeline_loss(outputs, labels), the same loss of what its last layer returns (docs/pipeline.md)");
}

void fail_with_pipeline_loss() {
  throw Error(ErrorCode::kArgument, "compute_loss of a Trainer that trains a pipeline: only the last stage computes the loss",
              "pass the Trainer a pipe::Module with that loss as pipe::Options::loss_fn, and leave compute_loss out");
}

void fail_with_smoothing() {
  throw Error(ErrorCode::kArgument, "label_smoothing_factor of a Trainer with a pipe::Module, whose loss_fn is the loss",
              "smooth the labels in loss_fn, or pass the model itself and write the stages into the config (pipeline.stages)");
}

void fail_with_some_labels() {
  throw Error(ErrorCode::kArgument, "some batches of the data set have labels, and others have none",
              "a pipeline evaluates several at a time: predict for those without labels in a data set of their own");
}

void fail_with_pipeline_engine(bool is_pipeline) {
  if (is_pipeline)
    throw Error(ErrorCode::kOrder, "engine() of a Trainer that trains its model as a pipeline", "call pipeline_engine()");
  throw Error(ErrorCode::kOrder, "pipeline_engine() of a Trainer that trains without a pipeline",
              "call engine(), or set pipeline.stages in the config");
}

bool is_first_of_replicas(const PipelineEngine& engine) {
  const ProcessTopology topology = engine.topology();
  return topology.get_dim("model") <= 1 || topology.get_coord(engine.process_group()->rank()).back().second == 0;
}

}  // namespace gannet::detail
