// What run_translation.py leaves in output_dir: train_results.json, eval_results.json, predict_results.json, all_results.json
// with the numbers of all of them, and generated_predictions.txt.
#pragma once

#include <gannet/value.h>

#include <string>
#include <vector>

namespace translation {

/// Prints the metrics of "train", "eval" or "predict", and writes them to SPLIT_results.json and, over those of former runs, to
/// all_results.json.
void save_metrics(const std::string& folder, const std::string& split, const gannet::Dict& metrics);
/// generated_predictions.txt: a line for each text.
void save_predictions(const std::string& folder, const std::vector<std::string>& texts);
/// The model's config.json and its vocabulary beside the weights in `folder`, so that the folder is a model again.
void complete_model(const std::string& folder, const std::string& model_folder, const std::string& vocabulary);

}  // namespace translation
