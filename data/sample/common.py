"""Names, places and times that every topic uses, and sentences that belong to no topic."""

from .grammar import Row


def same(names: str) -> list[Row]:
    """Names that all languages write alike."""
    return [(name,) * 5 for name in names.split(", ")]


TABLES: dict[str, list[Row]] = {
    # invented, without article; none starts with H, before which French elision depends on the word
    "company": same(
        "Velmora, Tarkonis, Brandelis, Nordvika, Solanetta, Kervion, Altessia, Quintora, Zephalon"
    ),
    "person": same(
        "Anna Kessler, Marco Belloni, Claire Dumont, Pablo Herrera, John Whitmore, Eva Lindner, Lucia Ortega, "
        "Mary Stanton, Paul Marchand"
    ),
    "city": [
        ("Berlin", "Berlin", "Berlín", "Berlin", "Berlino"),
        ("Paris", "Paris", "París", "Paris", "Parigi"),
        ("Rom", "Rome", "Roma", "Rome", "Roma"),
        ("Madrid", "Madrid", "Madrid", "Madrid", "Madrid"),
        ("London", "London", "Londres", "Londres", "Londra"),
        ("Brüssel", "Brussels", "Bruselas", "Bruxelles", "Bruxelles"),
        ("Warschau", "Warsaw", "Varsovia", "Varsovie", "Varsavia"),
        ("Mailand", "Milan", "Milán", "Milan", "Milano"),
        ("New York", "New York", "Nueva York", "New York", "New York"),
    ],
    # second part: "in the country"; third in French: "of the country" after an office
    "country": [
        ("Deutschland|in Deutschland", "Germany|in Germany", "Alemania|en Alemania",
         "l'Allemagne|en Allemagne|d'Allemagne", "la Germania|in Germania"),
        ("Frankreich|in Frankreich", "France|in France", "Francia|en Francia",
         "la France|en France|de France", "la Francia|in Francia"),
        ("Spanien|in Spanien", "Spain|in Spain", "España|en España",
         "l'Espagne|en Espagne|d'Espagne", "la Spagna|in Spagna"),
        ("Italien|in Italien", "Italy|in Italy", "Italia|en Italia",
         "l'Italie|en Italie|d'Italie", "l'Italia|in Italia"),
        ("Polen|in Polen", "Poland|in Poland", "Polonia|en Polonia",
         "la Pologne|en Pologne|de Pologne", "la Polonia|in Polonia"),
        ("China|in China", "China|in China", "China|en China",
         "la Chine|en Chine|de Chine", "la Cina|in Cina"),
        ("Japan|in Japan", "Japan|in Japan", "Japón|en Japón",
         "le Japon|au Japon|du Japon", "il Giappone|in Giappone"),
        ("Brasilien|in Brasilien", "Brazil|in Brazil", "Brasil|en Brasil",
         "le Brésil|au Brésil|du Brésil", "il Brasile|in Brasile"),
    ],
    "day": [
        ("am Montag", "on Monday", "el lunes", "lundi", "lunedì"),
        ("am Dienstag", "on Tuesday", "el martes", "mardi", "martedì"),
        ("am Mittwoch", "on Wednesday", "el miércoles", "mercredi", "mercoledì"),
        ("am Donnerstag", "on Thursday", "el jueves", "jeudi", "giovedì"),
        ("am Freitag", "on Friday", "el viernes", "vendredi", "venerdì"),
    ],
    "month": [
        ("im Januar", "in January", "en enero", "en janvier", "a gennaio"),
        ("im März", "in March", "en marzo", "en mars", "a marzo"),
        ("im Mai", "in May", "en mayo", "en mai", "a maggio"),
        ("im Juli", "in July", "en julio", "en juillet", "a luglio"),
        ("im September", "in September", "en septiembre", "en septembre", "a settembre"),
        ("im November", "in November", "en noviembre", "en novembre", "a novembre"),
    ],
    # change by a share; Italian continues with "del ..."
    "move": [
        ("stieg", "rose", "subió", "a progressé", "ha registrato un aumento"),
        ("fiel", "fell", "cayó", "a chuté", "ha registrato un calo"),
        ("kletterte", "climbed", "avanzó", "a grimpé", "ha segnato un rialzo"),
        ("sank", "declined", "descendió", "a reculé", "ha segnato un ribasso"),
    ],
    # the same for what can also grow and shrink
    "grow": [
        ("stieg", "rose", "subió", "a progressé", "ha registrato un aumento"),
        ("fiel", "fell", "cayó", "a chuté", "ha registrato un calo"),
        ("sank", "declined", "descendió", "a reculé", "ha segnato un ribasso"),
        ("wuchs", "grew", "creció", "a augmenté", "ha avuto una crescita"),
        ("schrumpfte", "shrank", "se redujo", "a diminué", "ha subito una riduzione"),
    ],
    "outlook": [
        ("schwierig", "difficult", "difícil", "difficile", "difficile"),
        ("ungewiss", "uncertain", "incierta", "incertaine", "incerta"),
        ("ernst", "serious", "grave", "grave", "grave"),
        ("stabil", "stable", "estable", "stable", "stabile"),
        ("kompliziert", "complicated", "complicada", "compliquée", "complicata"),
    ],
    "reply": [
        ("bestätigte diese Angaben", "confirmed this information", "confirmó esta información",
         "a confirmé cette information", "ha confermato questa informazione"),
        ("lehnte eine Stellungnahme ab", "declined to comment", "no quiso hacer comentarios",
         "a refusé de commenter", "non ha voluto commentare"),
        ("wies die Vorwürfe zurück", "rejected the accusations", "rechazó las acusaciones",
         "a rejeté les accusations", "ha respinto le accuse"),
        ("nannte keine Einzelheiten", "gave no details", "no dio detalles", "n'a pas donné de détails",
         "non ha fornito dettagli"),
        ("zeigte sich zuversichtlich", "expressed confidence", "expresó su confianza",
         "a exprimé sa confiance", "ha espresso fiducia"),
        ("forderte eine rasche Entscheidung", "called for a quick decision", "pidió una decisión rápida",
         "a demandé une décision rapide", "ha chiesto una decisione rapida"),
        ("warnte vor neuen Risiken", "warned of new risks", "advirtió de nuevos riesgos",
         "a mis en garde contre de nouveaux risques", "ha messo in guardia da nuovi rischi"),
    ],
}  # fmt: skip

TEMPLATES: list[Row] = [
    (
        "Weitere Einzelheiten sollen {day} in {city} vorgestellt werden, sagte {person}.",
        "More details are to be presented in {city} {day}, {person} said.",
        "{person} dijo que {day} se presentarán más detalles en {city}.",
        "{person} a dit que d'autres détails seraient présentés {day} à {city}.",
        "{person} ha detto che altri dettagli saranno presentati {day} {city:to}.",
    ),
    (
        "{person} {reply}, als die Zeitung {day} in {city} nachfragte.",
        "{person} {reply} when the newspaper asked in {city} {day}.",
        "{person} {reply} cuando el periódico preguntó {day} en {city}.",
        "{person} {reply} quand le journal a posé la question {day} à {city}.",
        "{person} {reply} quando il giornale ha posto la domanda {day} {city:to}.",
    ),
    (
        "Die Lage in {city} bleibt {outlook}, sagte {person} {day}.",
        "The situation in {city} remains {outlook}, {person} said {day}.",
        "La situación en {city} sigue siendo {outlook}, dijo {person} {day}.",
        "La situation à {city} reste {outlook}, a dit {person} {day}.",
        "La situazione {city:to} resta {outlook}, ha detto {person} {day}.",
    ),
    (
        "{person} will {day} nach {city} reisen und dort {person2} treffen.",
        "{person} wants to travel to {city} {day} and meet {person2} there.",
        "{person} quiere viajar {city:to} {day} y reunirse allí con {person2}.",
        "{person} veut se rendre à {city} {day} et y rencontrer {person2}.",
        "{person} vuole recarsi {city:to} {day} e incontrare lì {person2}.",
    ),
    (
        "Eine Sprecherin von {company} {reply}, wie die Agentur {day} aus {city} meldete.",
        "A spokeswoman for {company} {reply}, the agency reported from {city} {day}.",
        "Una portavoz {company:of} {reply}, informó la agencia {day} desde {city}.",
        "Une porte-parole {company:of} {reply}, a rapporté l'agence {day} depuis {city}.",
        "Una portavoce {company:of} {reply}, ha riferito l'agenzia {day} da {city}.",
    ),
    (
        "Nach Ansicht von {person} bleibt die Lage {country:1} vorerst {outlook}.",
        "In the view of {person}, the situation {country:1} remains {outlook} for now.",
        "En opinión {person:of}, la situación {country:1} sigue siendo {outlook} por ahora.",
        "Selon {person}, la situation {country:1} reste {outlook} pour le moment.",
        "Secondo {person}, la situazione {country:1} resta per ora {outlook}.",
    ),
    (
        "{month} ist in {city} ein weiteres Treffen mit {person} geplant.",
        "Another meeting with {person} is planned in {city} {month}.",
        "Está prevista {month} en {city} otra reunión con {person}.",
        "Une autre rencontre avec {person} est prévue {month} à {city}.",
        "Un altro incontro con {person} è previsto {month} {city:to}.",
    ),
]
