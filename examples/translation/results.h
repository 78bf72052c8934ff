// The result files of run_translation.py in output_dir: train_results.json, eval_results.json,
// predict_results.json, all_results.json with all their values, and generated_predictions.txt.
#pragma once

#include <gannet/value.h>

#include <string>
#include <vector>

namespace translation {

/// Prints the metrics of "train", "eval" or "predict". Writes them to SPLIT_results.json and merges
/// them into all_results.json.
void save_metrics(const std::string& folder, const std::string& split, const gannet::Dict& metrics);
/// Writes generated_predictions.txt, one line per text.
void save_predictions(const std::string& folder, const std::vector<std::string>& texts);
/// Copies the model's config.json and vocabulary next to the weights in `folder`, so that it is a
/// complete model folder.
void complete_model(const std::string& folder, const std::string& model_folder, const std::string& vocabulary);

}  // namespace translation
