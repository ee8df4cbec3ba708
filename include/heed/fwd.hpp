// Names without definitions, for headers that only mention heed's types by reference or pointer.
//
// Layers are not here: they are templates over constrained parameters and a HeadLayout value, so whoever names one
// needs their headers anyway.
#pragma once

#include <cstddef>

#include "heed/config.hpp"

namespace heed {

using Index = std::ptrdiff_t;
struct Host;
template <class T, int Rank, class Space = Host>
class View;
template <class T, int Rank, class Space = Host>
class Tensor;
template <class Space>
class BasicWorkspace;
using Workspace = BasicWorkspace<Host>;
struct HeadLayout;
struct bfloat16;
struct float16;
class Executor;
class Problem;

struct Window;
template <class M, class Space = Host>
class ScoreView;
template <class T, class Space = Host>
struct AttentionOptions;
struct RopeOptions;
struct InfiniAttentionOptions;
struct InfiniAttentionCall;

}  // namespace heed

namespace heed::inline HEED_ABI {

class Reference;
class Simd;
class Cpu;
class EigenMap;
class Compiled;

}  // namespace heed::inline HEED_ABI
