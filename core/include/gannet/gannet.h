/// Gannet: trains LibTorch models from a ds_config.json. Every backend is a plugin that is loaded
/// at run time.
///
///   auto model = std::make_shared<Net>();                    // an ordinary torch::nn::Module
///   auto [engine, optimizer, loader, scheduler] =
///       gannet::initialize(model, {.config = "ds_config.json", .training_data = dataset});
///   for (auto& batch : *loader) {
///     auto loss = engine->forward(batch.data, batch.target);
///     engine->backward(loss);
///     engine->step();
///   }
///
/// All errors of Gannet are thrown as gannet::Error.
#pragma once

#include <gannet/config.h>
#include <gannet/data.h>
#include <gannet/distributed.h>
#include <gannet/engine.h>
#include <gannet/error.h>
#include <gannet/estimate.h>
#include <gannet/folder.h>
#include <gannet/initialize.h>
#include <gannet/join.h>
#include <gannet/layers.h>
#include <gannet/log.h>
#include <gannet/mesh.h>
#include <gannet/model_config.h>
#include <gannet/mpu.h>
#include <gannet/pretrained.h>
#include <gannet/profile.h>
#include <gannet/sample_queue.h>
#include <gannet/split.h>
#include <gannet/stop.h>
#include <gannet/topology.h>
#include <gannet/value.h>
#include <gannet/zero.h>
