/* Ranks the pages of a search by all of its words. Sphinx shows only pages that have every word, and ranks them by the
   best word alone, so that a question finds nothing, or long pages first. Here rare words count more than common ones,
   words of titles and words that stand together in one heading more than others, and pages that are made of docstrings
   less than those that were written. A result leads to the heading that has most of the words. */

const WEIGHTS = { title: 3, heading: 1.5, text: 1, partial: 0.5, together: 2, generated: 0.5 };
const SHARE = 0.4; // of the weight of all words, which a page must have
const MOST = 40; // pages that are shown

document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search !== "undefined") Search.performTermsSearch = rankPages;
});

/* The results have a heading of the second level, and the page none of the first. */
window.addEventListener("load", () => {
  const heading = document.querySelector("#search-results h2");
  heading?.setAttribute("role", "heading");
  heading?.setAttribute("aria-level", "1");
});

/* The pages of a word, or of longer words that begin with it, which count less. */
function pagesOf(word, table) {
  const pages = (term) => (Object.hasOwn(table, term) ? [table[term]].flat() : []);
  if (Object.hasOwn(table, word)) return { pages: pages(word), factor: 1 };
  const longer = word.length > 3 ? Object.keys(table).filter((term) => term.startsWith(word)) : [];
  return { pages: longer.flatMap(pages), factor: WEIGHTS.partial };
}

function stemsOf(text, stemmer) {
  return new Set(splitQuery(text.toLowerCase()).map((word) => stemmer.stemWord(word)));
}

/* The heading of each page that has most of the words: its text, its anchor and the weight of these words. */
function bestHeadings(rarities, stemmer) {
  const best = new Map();
  for (const [text, places] of Object.entries(Search._index.alltitles)) {
    const stems = stemsOf(text, stemmer);
    const weight = [...rarities].reduce((sum, [word, rarity]) => sum + (stems.has(word) ? rarity : 0), 0);
    for (const [page, anchor] of weight > 0 ? places : []) {
      if (weight > (best.get(page)?.weight ?? 0)) best.set(page, { text, anchor, weight });
    }
  }
  return best;
}

function rankPages(words, excluded) {
  const { terms, titleterms, titles, docnames, filenames } = Search._index;
  const stemmer = new Stemmer();
  const inTitle = titles.map((title) => stemsOf(title, stemmer));
  const scores = new Map();
  const rarities = new Map();
  for (const word of words) {
    const weights = new Map();
    const [text, headings] = [pagesOf(word, terms), pagesOf(word, titleterms)];
    text.pages.forEach((page) => weights.set(page, WEIGHTS.text * text.factor));
    headings.pages.forEach((page) => {
      const weight = inTitle[page].has(word) ? WEIGHTS.title : WEIGHTS.heading;
      weights.set(page, Math.max(weight * headings.factor, weights.get(page) ?? 0));
    });
    if (weights.size === 0) continue; // no page has the word
    const rarity = Math.log(1 + titles.length / weights.size);
    rarities.set(word, rarity);
    weights.forEach((weight, page) => {
      const { score = 0, share = 0 } = scores.get(page) ?? {};
      scores.set(page, { score: score + weight * rarity, share: share + rarity });
    });
  }
  const total = [...rarities.values()].reduce((sum, rarity) => sum + rarity, 0);
  const headings = bestHeadings(rarities, stemmer);
  const unwanted = new Set([...excluded].flatMap((word) => [...pagesOf(word, terms).pages, ...pagesOf(word, titleterms).pages]));
  return [...scores]
    .filter(([page, { share }]) => share >= SHARE * total && !unwanted.has(page))
    .map(([page, { score }]) => {
      const { text = "", anchor = null, weight = 0 } = headings.get(page) ?? {};
      const leads = anchor !== null && weight >= total / 2 && text !== titles[page];
      const prior = docnames[page].startsWith("generated/") ? WEIGHTS.generated : 1;
      return [
        docnames[page],
        leads ? `${titles[page]} > ${text}` : titles[page],
        leads ? `#${anchor}` : "",
        null,
        (20 * prior * (score + WEIGHTS.together * weight)) / total,
        filenames[page],
        leads ? SearchResultKind.title : SearchResultKind.text,
      ];
    })
    .sort((one, other) => other[4] - one[4])
    .slice(0, MOST);
}
