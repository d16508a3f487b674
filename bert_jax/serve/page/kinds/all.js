/**
 * The panel of each kind of model, by the name of the kind:
 * - title, purpose and button are texts;
 * - fields(model) returns the fields of the form (see fields.js);
 * - request(values, model) returns the route and the JSON body;
 * - show(answer, values, model) returns a summary, which is read aloud, and the nodes below it.
 */

import { classifier } from "./classifier.js";
import { embedder } from "./embedder.js";
import { index } from "./index.js";
import { maskedLm } from "./masked_lm.js";
import { questionAnswerer } from "./question_answerer.js";
import { reranker } from "./reranker.js";
import { tagger } from "./tagger.js";

export const kinds = {
  embedder,
  reranker,
  classifier,
  tagger,
  "question-answerer": questionAnswerer,
  "masked-lm": maskedLm,
  index,
};
